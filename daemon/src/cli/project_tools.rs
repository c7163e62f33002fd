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

/// Files of a project whose content tells its tools.
pub(super) const FILES: [&str; 8] = [
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Justfile",
];
/// Files of a project that tell its tools by being there.
pub(super) const MARKS: [&str; 12] = [
    "pnpm-lock.yaml",
    "yarn.lock",
    "bun.lock",
    "bun.lockb",
    "uv.lock",
    "poetry.lock",
    ".venv/bin/python",
    "go.mod",
    "CMakeLists.txt",
    "build.gradle",
    "build.gradle.kts",
    "gradlew",
];

/// An optional input of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Input {
    name: String,
    /// The element of the command that has it, and is left out without it.
    element: String,
    description: &'static str,
}

impl Input {
    fn new(name: &str, before: &str, description: &'static str) -> Self {
        let element = format!("{before}{{{name}}}");
        Self { name: name.to_owned(), element, description }
    }

    fn schema(&self) -> String {
        // An input that is a whole argument must not be an option.
        let is_whole = self.element.starts_with('{');
        let pattern = if is_whole { "pattern = \"^[^-]\", " } else { "" };
        let Self { name, description, .. } = self;
        format!("{name} = {{ type = \"string\", {pattern}description = \"{description}\" }}")
    }
}

/// A filter of tests: the option that takes it, or nothing where it is an argument.
fn filter(before: &str) -> Input {
    Input::new("filter", before, "Only the tests whose names contain this")
}

/// A command that a project has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectTool {
    pub(super) name: String,
    description: String,
    pub(super) command: Vec<String>,
    inputs: Vec<Input>,
}

impl ProjectTool {
    fn new(name: &str, description: &str, command: &[&str]) -> Self {
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        Self { name, description: description.to_owned(), command, inputs: Vec::new() }
    }

    fn with(mut self, input: Input) -> Self {
        self.inputs.push(input);
        self
    }

    /// The `[[tool]]` of a configuration, run in this directory.
    pub(super) fn table(&self, cwd: &str, note: &str) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let elements = self.inputs.iter().map(|input| &input.element);
        let command: Vec<String> =
            self.command.iter().chain(elements).map(|part| quoted(part)).collect();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{note}[[tool]]\nname = {}", quoted(&self.name));
        let _ = writeln!(text, "description = {}", quoted(&self.description));
        let _ = writeln!(text, "command = [{}]\ncwd = {}", command.join(", "), quoted(cwd));
        text.push_str("task_support = \"optional\"\ntimeout = \"30m\"\n");
        if !self.inputs.is_empty() {
            text.push_str("[tool.input_schema]\ntype = \"object\"\nadditionalProperties = false\n");
            text.push_str("[tool.input_schema.properties]\n");
            for input in &self.inputs {
                let _ = writeln!(text, "{}", input.schema());
            }
        }
        text
    }
}

/// The tools of a project with these files. A name that an earlier file has gets the name of its
/// program before it, but for targets and recipes, which usually run the same.
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
    found.extend(by_marks(files));
    let make = ["GNUmakefile", "makefile", "Makefile"].into_iter().find_map(text);
    let wrapped = targets(make.unwrap_or_default(), "make", "Runs `make");
    let just = ["justfile", "Justfile"].into_iter().find_map(text);
    let recipes = targets(just.unwrap_or_default(), "just", "Runs the recipe `just");
    let mut tools: Vec<ProjectTool> = Vec::new();
    let has = |tools: &[ProjectTool], name: &str| tools.iter().any(|tool| tool.name == name);
    for mut tool in found {
        if has(&tools, &tool.name) {
            let program = tool.command.first().map(String::as_str).unwrap_or_default();
            let program = program.rsplit('/').next().unwrap_or_default();
            tool.name = format!("{program}-{}", tool.name);
        }
        if !has(&tools, &tool.name) {
            tools.push(tool);
        }
    }
    for tool in wrapped.into_iter().chain(recipes) {
        if !has(&tools, &tool.name) {
            tools.push(tool);
        }
    }
    tools
}

fn cargo(manifest: &str) -> Vec<ProjectTool> {
    let is_workspace = manifest.contains("[workspace]");
    let all = |name, what, command: &[&str]| {
        let tool = ProjectTool::new(name, what, command);
        let package = Input::new("package", "--package=", "Only this part of the project");
        if is_workspace { tool.with(package) } else { tool }
    };
    vec![
        all("build", "Builds the Cargo project", &["cargo", "build"]),
        all("test", "Runs the tests of the Cargo project", &["cargo", "test"]).with(filter("")),
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
    let has = |name: &str| files.contains_key(name);
    let runner = match () {
        () if has("pnpm-lock.yaml") => "pnpm",
        () if has("yarn.lock") => "yarn",
        () if has("bun.lock") || has("bun.lockb") => "bun",
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
            let is_test = matches!(name.as_str(), "test" | "tests" | "unit");
            let mut command = vec![runner, "run", name];
            // The others hand arguments on without it.
            if is_test && runner == "npm" {
                command.push("--");
            }
            let tool = ProjectTool::new(name, &what, &command);
            if is_test { tool.with(filter("")) } else { tool }
        })
        .collect()
}

fn python(manifest: &str, files: &BTreeMap<&str, String>) -> Vec<ProjectTool> {
    let has = |name: &str| files.contains_key(name);
    let python = if has(".venv/bin/python") { ".venv/bin/python" } else { "python3" };
    let runner: &[&str] = match () {
        () if has("uv.lock") => &["uv", "run"],
        () if has("poetry.lock") => &["poetry", "run"],
        () => &[python, "-m"],
    };
    let mut tools = Vec::new();
    let command = if manifest.contains("pytest") {
        run(runner, &["pytest"])
    } else if runner.contains(&"-m") {
        run(runner, &["unittest", "discover"])
    } else {
        run(runner, &["python3", "-m", "unittest", "discover"])
    };
    tools.push(ProjectTool::new("test", "Runs the Python tests", &command).with(filter("-k=")));
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

/// The tools of projects that a file tells by being there: Go, CMake, Gradle.
fn by_marks(files: &BTreeMap<&str, String>) -> Vec<ProjectTool> {
    let has = |name: &str| files.contains_key(name);
    let mut tools = Vec::new();
    if has("go.mod") {
        let of = |name, what, verb| ProjectTool::new(name, what, &["go", verb, "./..."]);
        tools.push(of("build", "Builds the Go module", "build"));
        tools.push(of("test", "Runs the tests of the Go module", "test").with(filter("-run=")));
        tools.push(of("vet", "Checks the Go module", "vet"));
    }
    if has("CMakeLists.txt") {
        let configure = ["cmake", "-S", ".", "-B", "build"];
        tools.push(ProjectTool::new("configure", "Configures the CMake project", &configure));
        let build = ["cmake", "--build", "build"];
        tools.push(ProjectTool::new("build", "Builds the CMake project", &build));
        let test = ["ctest", "--test-dir", "build", "--output-on-failure"];
        tools.push(ProjectTool::new("test", "Runs the tests of the CMake project", &test));
    }
    if has("gradlew") || has("build.gradle") || has("build.gradle.kts") {
        let gradle = if has("gradlew") { "./gradlew" } else { "gradle" };
        let of = |name, what, task| ProjectTool::new(name, what, &[gradle, task]);
        tools.push(of("build", "Builds the Gradle project", "assemble"));
        let test = of("test", "Runs the tests of the Gradle project", "test");
        tools.push(test.with(filter("--tests=")));
    }
    tools
}

/// The targets of a Makefile, or the recipes of a justfile, that need nothing and are safe to run. A
/// recipe may have a parameter with a default, which becomes an input.
fn targets(text: &str, program: &str, what: &str) -> Vec<ProjectTool> {
    let found = text.lines().filter(|line| !line.starts_with([' ', '\t'])).filter_map(|line| {
        let (head, rest) = line.split_once(':')?;
        let mut words = head.split_whitespace();
        let name = words.next().filter(|name| SAFE.contains(name) && !rest.starts_with('='))?;
        let parameters: Vec<&str> =
            words.map(|word| word.split_once('=').map(|(name, _)| name)).collect::<Option<_>>()?;
        let tool = ProjectTool::new(name, &format!("{what} {name}`"), &[program, name]);
        match parameters.as_slice() {
            [] => Some(tool),
            [one]
                if program == "just"
                    && one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
            {
                let name = one.to_ascii_lowercase();
                Some(tool.with(Input::new(&name, "", "The parameter of the recipe")))
            }
            _ => (program == "just").then_some(tool),
        }
    });
    found.collect()
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
        let venv =
            [("test", ".venv/bin/python -m pytest"), ("lint", ".venv/bin/python -m ruff check")];
        assert_eq!(found(&[("pyproject.toml", python), (".venv/bin/python", "")]), pairs(&venv));
        let bare = pairs(&[("test", "python3 -m unittest discover")]);
        assert_eq!(found(&[("pyproject.toml", "[project]\n")]), bare);
        let make = "CC := gcc\nbuild: main.o\n\tcc\ntest:\n\t./t\ndeploy:\n\tscp\ncheck := 1\n";
        let targets = [("build", "make build"), ("test", "make test")];
        assert_eq!(found(&[("Makefile", make)]), pairs(&targets));
        let just = "test:\n  pytest\nbuild target:\n  make\ndefault: test\n";
        assert_eq!(found(&[("justfile", just)]), pairs(&[("test", "just test")]));
        let with_default = "test FILTER=\"\":\n  pytest -k {{FILTER}}\n";
        assert_eq!(found(&[("justfile", with_default)]), pairs(&[("test", "just test")]));
        let go = [("build", "go build ./..."), ("test", "go test ./..."), ("vet", "go vet ./...")];
        assert_eq!(found(&[("go.mod", "")]), pairs(&go));
        let gradle = [("build", "./gradlew assemble"), ("test", "./gradlew test")];
        assert_eq!(found(&[("build.gradle.kts", ""), ("gradlew", "")]), pairs(&gradle));
        let cmake: Vec<_> = found(&[("CMakeLists.txt", "")]).into_iter().map(|it| it.0).collect();
        assert_eq!(cmake, ["configure", "build", "test"]);
        let bun = [("build", "bun run build"), ("lint", "bun run lint")];
        assert_eq!(found(&[("package.json", scripts), ("bun.lock", "")]), pairs(&bun));
        assert_eq!(found(&[]), []);
        // Targets usually run the commands of the other files; scripts of the same name do not.
        let both = found(&[("Cargo.toml", ""), ("Makefile", "test:\n\nlint:\n")]);
        assert_eq!(both.len(), 5, "{both:?}");
        let both = found(&[("Cargo.toml", ""), ("package.json", scripts)]);
        let npm = [("npm-build".to_owned(), "npm run build".to_owned())];
        assert!(both.contains(&npm[0]) && both.len() == 6, "{both:?}");
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
        let warnings = config.tools.iter().filter_map(|tool| match &tool.run {
            crate::config::Run::Command(command) => {
                crate::config::option_warning(&command.template, &tool.arguments)
            }
            _ => None,
        });
        assert_eq!(warnings.count(), 0);
        let rules = &config.tool("test").unwrap().arguments;
        assert!(rules.check(Some(r#"{"filter": "parser"}"#)).is_ok());
        assert!(rules.check(Some(r#"{"filter": "--config=x"}"#)).is_err());
    }
}
