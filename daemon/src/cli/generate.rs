//! `ceased completions` and `ceased man`: generated from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory as _;

use super::args::{Arguments, CompletionsArgs, ManArgs};
use super::{Exit, Failure, Io};

/// `ceased completions`.
pub(super) fn completions(args: &CompletionsArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "ceased", &mut script);
    io.out.write_all(&script)?;
    Ok(Exit::Done)
}

/// `ceased man`: writes `ceased.1`, and `ceased-COMMAND.1` for every public command.
pub(super) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let dir = &args.dir;
    let fail = |path: &Path, why| {
        Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|why| fail(dir, why))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    pages(&command, dir).map_err(|why| fail(dir, why))?;
    Ok(Exit::Done)
}

/// Writes the page of a command and those of its subcommands, each with the version of the program,
/// which clap sets only for the program itself.
fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, dir)?;
    }
    let program = concat!("ceased ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).source(program).generate_to(dir).map(drop)
}
