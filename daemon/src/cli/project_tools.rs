//! Tools that a project would have: its build, its tests and its checks, by the files in its top
//! directory.
//!
//! A pure function of the texts of those files. Only names that say that a command builds or checks
//! are taken from scripts, targets and recipes: `ceased init` runs each command once.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Names of scripts, targets and recipes that build or check, and change nothing elsewhere.
const SAFE: [&str; 12] = [
    "build",
    "test",
    "tests",
    "check",
    "lint",
    "typecheck",
    "type-check",
    "clippy",
    "fmt-check",
    "format-check",
    "format:check",
    "unit",
];
/// The script that `npm init` writes.
const NO_TEST: &str = "no test specified";

/// The files of a project that are looked at.
pub(super) const FILES: [&str; 12] = [
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Justfile",
    "pnpm-lock.yaml",
    "yarn.lock",
    "uv.lock",
    "poetry.lock",
];

/// A command that a project has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectTool {
    pub(super) name: String,
    description: String,
    pub(super) command: Vec<String>,
    /// An optional input that names a part of the project, and the option that takes it.
    part: Option<(&'static str, &'static str)>,
}

impl ProjectTool {
    fn new(name: &str, description: &str, command: &[&str]) -> Self {
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        Self { name, description: description.to_owned(), command, part: None }
    }

    const fn with_part(mut self, input: &'static str, option: &'static str) -> Self {
        self.part = Some((input, option));
        self
    }

    /// The `[[tool]]` of a configuration, run in this directory.
    pub(super) fn table(&self, cwd: &str, note: &str) -> String {
        let mut command = self.command.clone();
        if let Some((input, option)) = self.part {
            command.push(format!("{option}={{{input}}}"));
        }
        let quoted = |text: &str| Value::from(text).to_string();
        let command: Vec<String> = command.iter().map(|part| quoted(part)).collect();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{note}[[tool]]\nname = {}", quoted(&self.name));
        let _ = writeln!(text, "description = {}", quoted(&self.description));
        let _ = writeln!(text, "command = [{}]\ncwd = {}", command.join(", "), quoted(cwd));
        text.push_str("task_support = \"optional\"\ntimeout = \"30m\"\n");
        if let Some((input, _)) = self.part {
            let _ = writeln!(text, "[tool.input.{input}]\ntype = \"string\"");
            text.push_str("description = \"Only this part of the project\"\n");
        }
        text
    }
}

/// The tools of a project with these files. No name comes twice: the first file that has it counts.
pub(super) fn tools(files: &BTreeMap<&str, String>) -> Vec<ProjectTool> {
    let text = |name: &str| files.get(name).map(String::as_str);
    let mut found = Vec::new();
    if let Some(manifest) = text("Cargo.toml") {
        found.extend(cargo(manifest));
    }
    if let Some(manifest) = text("package.json") {
        found.extend(npm(manifest, files));
    }
    if let Some(manifest) = text("pyproject.toml") {
        found.extend(python(manifest, files));
    }
    let make = ["GNUmakefile", "makefile", "Makefile"].into_iter().find_map(text);
    found.extend(targets(make.unwrap_or_default(), "make", "Runs `make"));
    let just = ["justfile", "Justfile"].into_iter().find_map(text);
    found.extend(targets(just.unwrap_or_default(), "just", "Runs the recipe `just"));
    let mut tools: Vec<ProjectTool> = Vec::new();
    for tool in found {
        if tools.iter().all(|other| other.name != tool.name) {
            tools.push(tool);
        }
    }
    tools
}

fn cargo(manifest: &str) -> Vec<ProjectTool> {
    let is_workspace = manifest.contains("[workspace]");
    let all = |name, what, command: &[&str]| {
        let tool = ProjectTool::new(name, what, command);
        if is_workspace { tool.with_part("package", "--package") } else { tool }
    };
    vec![
        all("build", "Builds the Cargo project", &["cargo", "build"]),
        all("test", "Runs the tests of the Cargo project", &["cargo", "test"]),
        all("clippy", "Lints the Cargo project", &["cargo", "clippy", "--all-targets"]),
        ProjectTool::new(
            "fmt-check",
            "Checks the format of the Cargo project, and changes nothing",
            &["cargo", "fmt", "--check"],
        ),
    ]
}

fn npm(manifest: &str, files: &BTreeMap<&str, String>) -> Vec<ProjectTool> {
    let Ok(manifest) = serde_json::from_str::<Value>(manifest) else { return Vec::new() };
    let runner = match () {
        () if files.contains_key("pnpm-lock.yaml") => "pnpm",
        () if files.contains_key("yarn.lock") => "yarn",
        () => "npm",
    };
    let scripts = manifest["scripts"].as_object();
    let is_real = |(name, script): &(&String, &Value)| {
        let script = script.as_str().unwrap_or_default();
        SAFE.contains(&name.as_str()) && !script.contains(NO_TEST)
    };
    let scripts = scripts.into_iter().flatten().filter(is_real);
    scripts
        .map(|(name, _)| {
            let what = format!("Runs the script `{name}` of package.json");
            ProjectTool::new(name, &what, &[runner, "run", name])
        })
        .collect()
}

fn python(manifest: &str, files: &BTreeMap<&str, String>) -> Vec<ProjectTool> {
    let runner: &[&str] = match () {
        () if files.contains_key("uv.lock") => &["uv", "run"],
        () if files.contains_key("poetry.lock") => &["poetry", "run"],
        () => &["python3", "-m"],
    };
    let mut tools = Vec::new();
    if manifest.contains("pytest") {
        tools.push(ProjectTool::new("test", "Runs the Python tests", &run(runner, &["pytest"])));
    } else {
        let command = ["python3", "-m", "unittest", "discover"];
        let command = if runner.contains(&"-m") { command.to_vec() } else { run(runner, &command) };
        tools.push(ProjectTool::new("test", "Runs the Python tests", &command));
    }
    if manifest.contains("[tool.ruff") {
        tools.push(ProjectTool::new(
            "lint",
            "Lints the Python code",
            &run(runner, &["ruff", "check"]),
        ));
    }
    if manifest.contains("[tool.mypy") {
        let what = "Checks the types of the Python code";
        tools.push(ProjectTool::new("typecheck", what, &run(runner, &["mypy", "."])));
    }
    tools
}

/// A command with the program that runs it in the environment of the project.
fn run<'a>(runner: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [runner, command].concat()
}

/// The targets of a Makefile, or the recipes of a justfile, that take nothing and are safe to run.
fn targets(text: &str, program: &str, what: &str) -> Vec<ProjectTool> {
    let names = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (SAFE.contains(&name) && !rest.starts_with('=')).then_some(name)
    });
    names.map(|name| ProjectTool::new(name, &format!("{what} {name}`"), &[program, name])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let files = files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let tools = tools(&files);
        tools.into_iter().map(|tool| (tool.name, tool.command.join(" "))).collect()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, command)| ((*name).into(), (*command).into())).collect()
    }

    #[test]
    fn tools_of_each_kind_of_project() {
        let cargo = pairs(&[
            ("build", "cargo build"),
            ("test", "cargo test"),
            ("clippy", "cargo clippy --all-targets"),
            ("fmt-check", "cargo fmt --check"),
        ]);
        assert_eq!(found(&[("Cargo.toml", "[package]\nname = \"x\"")]), cargo);
        let scripts = r#"{"scripts": {"build": "tsc", "deploy": "rm -rf /", "lint": "eslint ."}}"#;
        let npm = [("build", "npm run build"), ("lint", "npm run lint")];
        assert_eq!(found(&[("package.json", scripts)]), pairs(&npm));
        let pnpm = [("build", "pnpm run build"), ("lint", "pnpm run lint")];
        assert_eq!(found(&[("package.json", scripts), ("pnpm-lock.yaml", "")]), pairs(&pnpm));
        let none = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        assert_eq!(found(&[("package.json", none)]), []);
        assert_eq!(found(&[("package.json", "nonsense")]), []);
        let python = "[tool.pytest.ini_options]\n[tool.ruff]\n";
        let plain = [("test", "python3 -m pytest"), ("lint", "python3 -m ruff check")];
        assert_eq!(found(&[("pyproject.toml", python)]), pairs(&plain));
        let uv = [("test", "uv run pytest"), ("lint", "uv run ruff check")];
        assert_eq!(found(&[("pyproject.toml", python), ("uv.lock", "")]), pairs(&uv));
        let bare = pairs(&[("test", "python3 -m unittest discover")]);
        assert_eq!(found(&[("pyproject.toml", "[project]\n")]), bare);
        let make = "CC := gcc\nbuild: main.o\n\tcc\ntest:\n\t./t\ndeploy:\n\tscp\ncheck := 1\n";
        let targets = [("build", "make build"), ("test", "make test")];
        assert_eq!(found(&[("Makefile", make)]), pairs(&targets));
        let just = "test:\n  pytest\nbuild target:\n  make\ndefault: test\n";
        assert_eq!(found(&[("justfile", just)]), pairs(&[("test", "just test")]));
        assert_eq!(found(&[]), []);
        // The first file that has a name counts.
        let both = found(&[("Cargo.toml", ""), ("Makefile", "test:\n\nlint:\n")]);
        assert_eq!(both.len(), 5, "{both:?}");
    }

    #[test]
    fn tables_can_be_read() {
        let files = [("Cargo.toml", "[workspace]\n".to_owned())].into_iter().collect();
        let text: String =
            tools(&files).iter().map(|tool| tool.table("client", "# \u{e4}\n")).collect();
        let path = std::path::Path::new("/p/ceased.toml");
        let config =
            crate::config::Config::parse(&text, path).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(config.tools.len(), 4);
        assert!(config.tool("test").unwrap().runs().contains("--package={package}"));
    }
}
