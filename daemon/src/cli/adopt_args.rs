//! Arguments of `ceased adopt` and `ceased import`.

use std::path::PathBuf;

use clap::Args;

/// `adopt`.
#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    /// A host, such as cursor, claude, vscode, zed, codex, or its file, such as .mcp.json; every file
    /// that is found is shown without it
    #[arg(value_name = "HOST|FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) target: Option<PathBuf>,
    /// Write the file, and keep the old content in FILE.bak
    #[arg(long)]
    pub(super) write: bool,
    /// Remove ceased from every entry; [[server]] tables stay in the daemon's config
    #[arg(long, conflicts_with = "shared")]
    pub(super) undo: bool,
    /// Move the servers into the daemon's config; the host reaches each through `ceased connect
    /// --server NAME`
    #[arg(long)]
    pub(super) shared: bool,
    /// Config file of the daemon, with --shared [default: as of `serve`]
    #[arg(long, value_name = "FILE", requires = "shared")]
    pub(super) config: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The host's file, such as ~/.claude.json, .mcp.json, .vscode/mcp.json
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}
