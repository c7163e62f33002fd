//! `ceased init`: a first configuration whose tools were run, and which is found.

use std::fs;
use std::path::PathBuf;

use ceased_tests::daemon::{Home, Program, Ran};

/// A project with a Makefile, in a home of its own.
struct Project(Home);

impl Project {
    fn new(makefile: &str) -> Self {
        let home = Home::new();
        fs::create_dir(home.path().join("app")).unwrap();
        fs::write(home.path().join("app/Makefile"), makefile).unwrap();
        Self(home)
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("app")
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.0.command(args);
        command.current_dir(self.dir()).env("HOME", self.0.path());
        command.env("XDG_RUNTIME_DIR", self.0.path());
        Program::start(&self.0, command).wait()
    }
}

const MAKEFILE: &str = "build:\n\t@echo built in $(CURDIR)\nlint:\n\t@echo bad line; exit 3\n\
                        deploy:\n\ttouch deployed\n";

#[test]
fn tools_of_a_project_are_run_and_written() {
    let project = Project::new(MAKEFILE);
    let ran = project.run(&["init", "--project"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err.contains("build works") && ran.err.contains("lint exited with code"),
        "{ran:?}"
    );
    // The last line of its output, once.
    let failed = ran.err.lines().find(|line| line.contains("lint exited")).unwrap();
    assert_eq!(failed.matches("exited with code").count(), 1, "{failed}");
    assert!(failed.contains("Error 3"), "{failed}");
    assert!(ran.err.contains("claude mcp add ceased -- "), "{ran:?}");
    assert!(ran.err.contains(r#""args":["stdio"]"#), "{ran:?}");
    assert!(!project.dir().join("deployed").exists(), "only safe targets run");
    let text = fs::read_to_string(project.dir().join("ceased.toml")).unwrap();
    assert!(
        text.contains("[\"make\", \"build\"]") && text.contains("[\"make\", \"lint\"]"),
        "{text}"
    );
    assert!(!text.contains("deploy"), "{text}");
    // `init` trusts the file, so stdio and check use it.
    let ran = project.run(&["check"]);
    assert!(ran.out.contains("tool build") && !ran.err.contains("not trusted"), "{ran:?}");
    // Without a daemon they are listed and run as well.
    let ran = project.run(&["tools"]);
    assert!(
        ran.code == Some(0) && ran.out.contains("build") && ran.out.contains("lint"),
        "{ran:?}"
    );
    let ran = project.run(&["call", "build"]);
    assert!(ran.code == Some(0) && ran.out.contains("built in"), "{ran:?}");
    let ran = project.run(&["--socket", "/nonexistent/s", "call", "build"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    // A second one changes nothing.
    let ran = project.run(&["init", "--project"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("is there already"), "{ran:?}");
    assert_eq!(fs::read_to_string(project.dir().join("ceased.toml")).unwrap(), text);
}

#[test]
fn configuration_of_the_user_serves_the_project_of_the_client() {
    let project = Project::new(MAKEFILE);
    let ran = project.run(&["init", "--no-run"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = fs::read_to_string(project.0.path().join(".config/ceased/config.toml")).unwrap();
    assert!(text.contains("cwd = \"client\""), "{text}");
    let ran = project.run(&["call", "build"]);
    let dir = project.dir().canonicalize().unwrap();
    assert!(ran.out.contains(&format!("built in {}", dir.display())), "{ran:?}");
}

#[test]
fn print_writes_nothing_and_no_project_is_said() {
    let project = Project::new(MAKEFILE);
    let ran = project.run(&["init", "--print"]);
    assert!(ran.code == Some(0) && ran.out.contains("[[tool]]"), "{ran:?}");
    assert!(!project.0.path().join(".config").exists());
    let project = Project::new("deploy:\n\ttouch deployed\n");
    let ran = project.run(&["init"]);
    assert!(ran.code == Some(1) && ran.err.contains("Cargo.toml"), "{ran:?}");
    assert!(!project.0.path().join(".config").exists());
}
