//! Hosts by name, and the usual places of their files.

use std::path::{Path, PathBuf};

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Further names.
    aliases: &'static [&'static str],
    /// Name for people.
    pub(crate) title: &'static str,
    /// Files of a user.
    user: &'static [Place],
    /// Files of a project, from its directory on. `*` is every file of a directory.
    project: &'static [&'static str],
    /// Explanation of a name that can be understood in two ways.
    pub(crate) note: Option<&'static str>,
}

/// A place of a user's file.
#[derive(Debug)]
enum Place {
    /// Below the home directory.
    Home(&'static str),
    /// Below `$XDG_CONFIG_HOME`, usually `~/.config`.
    Config(&'static str),
    /// Below the directory that a variable names, which else is one below the home directory.
    Named(&'static str, &'static str, &'static str),
    /// The file that a variable names.
    File(&'static str),
}

use Place::{Config, File, Home, Named};

/// Directory of the settings of an extension of VS Code.
macro_rules! extension {
    ($id:literal, $file:literal) => {
        Config(concat!("Code/User/globalStorage/", $id, "/settings/", $file))
    };
}

/// The known hosts.
static HOSTS: [Host; 20] = [
    Host {
        note: Some("claude is Claude Code; claude-desktop is Claude Desktop"),
        ..host(
            "claude",
            &["claude-code"],
            "Claude Code",
            &[Named("CLAUDE_CONFIG_DIR", "", ".claude.json")],
            &[".mcp.json"],
        )
    },
    host(
        "claude-desktop",
        &[],
        "Claude Desktop",
        &[Config("Claude/claude_desktop_config.json")],
        &[],
    ),
    host("cursor", &[], "Cursor", &[Home(".cursor/mcp.json")], &[".cursor/mcp.json"]),
    host(
        "vscode",
        &["code", "vs-code"],
        "VS Code",
        &[
            Config("Code/User/mcp.json"),
            Config("Code/User/settings.json"),
            Config("Code - Insiders/User/mcp.json"),
        ],
        &[".vscode/mcp.json", ".vscode/settings.json"],
    ),
    host("zed", &[], "Zed", &[Config("zed/settings.json")], &[".zed/settings.json"]),
    host("windsurf", &[], "Windsurf", &[Home(".codeium/windsurf/mcp_config.json")], &[]),
    host(
        "cline",
        &[],
        "Cline",
        &[
            extension!("saoudrizwan.claude-dev", "cline_mcp_settings.json"),
            Home(".cline/data/settings/cline_mcp_settings.json"),
            File("CLINE_MCP_SETTINGS_PATH"),
        ],
        &[],
    ),
    host(
        "roo",
        &["roo-code"],
        "Roo Code",
        &[extension!("rooveterinaryinc.roo-cline", "mcp_settings.json")],
        &[".roo/mcp.json"],
    ),
    Host {
        note: Some("gemini is Gemini CLI"),
        ..host(
            "gemini",
            &["gemini-cli"],
            "Gemini CLI",
            &[Home(".gemini/settings.json")],
            &[".gemini/settings.json"],
        )
    },
    host(
        "qwen",
        &["qwen-code"],
        "Qwen Code",
        &[Home(".qwen/settings.json")],
        &[".qwen/settings.json"],
    ),
    host(
        "codex",
        &[],
        "Codex",
        &[Named("CODEX_HOME", ".codex", "config.toml")],
        &[".codex/config.toml"],
    ),
    host(
        "opencode",
        &[],
        "OpenCode",
        &[
            Config("opencode/opencode.json"),
            Config("opencode/opencode.jsonc"),
            File("OPENCODE_CONFIG"),
        ],
        &["opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"],
    ),
    host("goose", &[], "Goose", &[Config("goose/config.yaml")], &[]),
    host(
        "continue",
        &[],
        "Continue",
        &[Home(".continue/config.yaml"), Home(".continue/mcpServers/*")],
        &[".continue/mcpServers/*"],
    ),
    Host {
        note: Some(
            "copilot is Copilot CLI; Copilot in VS Code has its servers in the files of vscode",
        ),
        ..host(
            "copilot",
            &["copilot-cli"],
            "Copilot CLI",
            &[
                Named("COPILOT_HOME", ".copilot", "mcp-config.json"),
                Named("XDG_CONFIG_HOME", ".copilot", "mcp-config.json"),
                Config("copilot/mcp-config.json"),
            ],
            &[".mcp.json", ".github/mcp.json"],
        )
    },
    host("jetbrains", &[], "JetBrains", &[Home(".jetbrains/acp.json")], &[]),
    host("junie", &[], "Junie", &[Home(".junie/mcp/mcp.json")], &[".junie/mcp/mcp.json"]),
    host("kiro", &[], "Kiro", &[Home(".kiro/settings/mcp.json")], &[".kiro/settings/mcp.json"]),
    host("amazonq", &["q"], "Amazon Q", &[Home(".aws/amazonq/mcp.json")], &[".amazonq/mcp.json"]),
    host("crush", &[], "Crush", &[Config("crush/crush.json")], &["crush.json", ".crush.json"]),
];

const fn host(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    user: &'static [Place],
    project: &'static [&'static str],
) -> Host {
    Host { name, aliases, title, user, project, note: None }
}

/// All hosts.
pub(crate) fn all() -> &'static [Host] {
    &HOSTS
}

/// The host of a name.
pub(crate) fn by_name(name: &str) -> Option<&'static Host> {
    HOSTS.iter().find(|host| host.name == name || host.aliases.contains(&name))
}

/// Whether a path, from the directory of a project on, is one that a host reads in a project.
pub(super) fn is_project_file(path: &Path) -> bool {
    HOSTS.iter().flat_map(|host| host.project).any(|place| match place.strip_suffix("/*") {
        Some(dir) => path.parent() == Some(Path::new(dir)),
        None => path == Path::new(place),
    })
}

impl Host {
    /// The places of its files for a user with these variables and a project, whether they are there
    /// or not.
    pub(crate) fn places(
        &self,
        variable: &impl Fn(&str) -> Option<PathBuf>,
        project: &Path,
    ) -> Vec<PathBuf> {
        let home = variable("HOME");
        let below = |path: &str| home.as_ref().map(|home| home.join(path));
        let config = || variable("XDG_CONFIG_HOME").or_else(|| below(".config"));
        let of_user = self.user.iter().filter_map(|place| match place {
            Home(path) => below(path),
            Config(path) => config().map(|dir| dir.join(path)),
            Named(name, usual, file) => {
                variable(name).or_else(|| below(usual)).map(|dir| dir.join(file))
            }
            File(name) => variable(name),
        });
        let of_project = self.project.iter().map(|place| project.join(place));
        let mut places = Vec::new();
        for place in of_user.chain(of_project).flat_map(expanded) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

/// The files of a directory if a place ends with `*`.
fn expanded(place: PathBuf) -> Vec<PathBuf> {
    if !place.ends_with("*") {
        return vec![place];
    }
    let dir = place.parent().map(Path::to_owned).unwrap_or_default();
    let is_file = |path: &PathBuf| {
        path.extension().is_some_and(|it| ["yaml", "yml", "json"].iter().any(|known| it == *known))
    };
    let found = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = found.map(|entry| entry.path()).filter(is_file).collect();
    files.sort();
    if files.is_empty() { vec![place] } else { files }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_name_and_their_files_by_the_environment() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/me"));
        let places = |name: &str| {
            let all = by_name(name).unwrap().places(&home, Path::new("/srv/app"));
            all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(places("cursor"), ["/home/me/.cursor/mcp.json", "/srv/app/.cursor/mcp.json"]);
        assert_eq!(places("claude-code"), ["/home/me/.claude.json", "/srv/app/.mcp.json"]);
        assert_eq!(places("codex"), ["/home/me/.codex/config.toml", "/srv/app/.codex/config.toml"]);
        assert_eq!(places("goose"), ["/home/me/.config/goose/config.yaml"]);
        let moved = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/me")),
            "XDG_CONFIG_HOME" => Some("/x".into()),
            "CODEX_HOME" => Some("/c".into()),
            _ => None,
        };
        let codex = by_name("codex").unwrap().places(&moved, Path::new("/p"));
        assert_eq!(codex[0], Path::new("/c/config.toml"));
        let zed = by_name("zed").unwrap().places(&moved, Path::new("/p"));
        assert_eq!(zed[0], Path::new("/x/zed/settings.json"));
        assert!(by_name("cursr").is_none());
        let names: Vec<_> =
            all().iter().flat_map(|it| it.aliases.iter().chain([&it.name])).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }
}
