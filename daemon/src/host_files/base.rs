//! The project of a host's file: where its relative paths begin.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::hosts::is_project_file;
use crate::accounts;

/// Where the relative paths of a host's file begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// The project; `None` for a file of a user, which serves every project.
    project: Option<PathBuf>,
    /// Home directory of the user.
    home: Option<PathBuf>,
}

impl Base {
    /// The base of the entries in a file: the project that has the file at a usual place, or the
    /// directory of the file. A file in a home directory, or in a hidden directory of one, has none.
    pub(crate) fn of(file: &Path) -> Self {
        let named = std::env::var_os("HOME").map(PathBuf::from).filter(|it| it.is_absolute());
        let owner = file.metadata().ok().and_then(|it| accounts::home_of(it.uid()));
        let homes: Vec<PathBuf> = named.iter().chain(&owner).cloned().collect();
        let home = named.or(owner);
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Self { project: project(&plain(&file), &homes), home }
    }

    /// The base of one entry, which can name a project of its own.
    pub(super) fn or_project(&self, project: Option<&str>) -> Self {
        let project = project.map(PathBuf::from).or_else(|| self.project.clone());
        Self { project, home: self.home.clone() }
    }

    /// The project.
    pub(super) fn project(&self) -> Option<&Path> {
        self.project.as_deref()
    }

    /// The value of a variable that hosts have for directories.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = |path: &Path| path.to_str().map(str::to_owned);
        match name {
            "workspaceFolder" | "workspaceRoot" | "CLAUDE_PROJECT_DIR" => text(self.project()?),
            "workspaceFolderBasename" => text(Path::new(self.project()?.file_name()?)),
            "userHome" => text(self.home.as_deref()?),
            "pathSeparator" | "/" => Some("/".to_owned()),
            _ => None,
        }
    }

    /// An absolute path for one that begins in the project, at `~` or at the root; `None` if it
    /// begins in a project that is not there.
    pub(super) fn absolute(&self, path: &str) -> Option<String> {
        let home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let whole = match home {
            Some(rest) => self.home.as_ref()?.join(rest.trim_start_matches('/')),
            None if path.starts_with('/') => return Some(path.to_owned()),
            None => self.project()?.join(path),
        };
        plain(&whole).to_str().map(str::to_owned)
    }
}

/// A path without `.`.
pub(super) fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn project(file: &Path, homes: &[PathBuf]) -> Option<PathBuf> {
    let dir = file.parent()?;
    let known = dir.ancestors().find(|dir| {
        file.strip_prefix(dir).is_ok_and(|rest| dir.parent().is_some() && is_project_file(rest))
    });
    let project = known.unwrap_or(dir);
    let is_same = |home: &PathBuf| {
        project == home
            || project
                .canonicalize()
                .is_ok_and(|it| home.canonicalize().is_ok_and(|home| it == home))
    };
    let is_hidden = |home: &PathBuf| {
        let rest = file.strip_prefix(home).ok().and_then(|rest| rest.components().next());
        // `opencode.json` is a name of a project's file and of one in `~/.config/opencode`.
        rest.is_some_and(|first| match known {
            Some(_) => first.as_os_str() == ".config",
            None => first.as_os_str().as_encoded_bytes().starts_with(b"."),
        })
    };
    let is_of_user = homes.iter().any(|home| is_same(home) || is_hidden(home))
        || (known.is_none() && file.starts_with("/etc"));
    (!is_of_user).then(|| project.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_found_from_the_place_of_the_file() {
        let homes = [PathBuf::from("/home/me")];
        let of = |file: &str| project(Path::new(file), &homes);
        for (file, want) in [
            ("/srv/app/.mcp.json", Some("/srv/app")),
            ("/srv/app/.cursor/mcp.json", Some("/srv/app")),
            ("/home/me/app/.vscode/mcp.json", Some("/home/me/app")),
            ("/home/me/app/.codex/config.toml", Some("/home/me/app")),
            ("/srv/app/.continue/mcpServers/git.yaml", Some("/srv/app")),
            ("/srv/app/servers.json", Some("/srv/app")),
            ("/home/me/.cursor/mcp.json", None),
            ("/home/me/.claude.json", None),
            ("/home/me/.codex/config.toml", None),
            ("/home/me/.config/Claude/claude_desktop_config.json", None),
            ("/home/me/.continue/mcpServers/git.yaml", None),
            ("/home/me/.config/opencode/opencode.json", None),
            ("/home/me/.dotfiles/app/.mcp.json", Some("/home/me/.dotfiles/app")),
            ("/etc/claude-code/managed-mcp.json", None),
        ] {
            assert_eq!(of(file), want.map(PathBuf::from), "{file}");
        }
    }

    #[test]
    fn paths_become_absolute() {
        let home = Some(PathBuf::from("/home/me"));
        let base = Base { project: Some("/srv/app".into()), home: home.clone() };
        for (path, want) in [
            ("./run", "/srv/app/run"),
            ("sub/./run", "/srv/app/sub/run"),
            (".", "/srv/app"),
            ("../run", "/srv/app/../run"),
            ("/bin/sh", "/bin/sh"),
            ("~/run", "/home/me/run"),
            ("~", "/home/me"),
            ("~x/run", "/srv/app/~x/run"),
        ] {
            assert_eq!(base.absolute(path).as_deref(), Some(want), "{path}");
        }
        let of_user = Base { project: None, home };
        assert_eq!(of_user.absolute("./run"), None);
        assert_eq!(of_user.absolute("~/run").as_deref(), Some("/home/me/run"));
        assert_eq!(base.variable("workspaceFolder").as_deref(), Some("/srv/app"));
        assert_eq!(of_user.variable("workspaceFolder"), None);
    }
}
