//! The walks of ARCHITECTURE.md list every file that is entered, as the program runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use ceased_tests::{binary, workspace};

/// A walk enters no file that its list does not have, in a build of the same profile.
#[test]
#[ignore = "takes more than a minute, most of it waiting"]
fn walks_enter_listed_files_alone() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the tool sets breakpoints of x86_64 by ptrace");
        return;
    }
    let mut walks = Command::new("python3");
    walks.arg("-S").arg(workspace::root().join(".ci/walks")).arg(binary::ceased()).arg("--check");
    let output = walks.output().expect("python3 starts");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", told(&output.stdout));
    assert!(output.status.success(), "{}", told(&output.stderr));
}

#[test]
fn listed_files_of_walks_exist() {
    let document = workspace::root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(document).expect("it is there");
    let part = text.split("<!-- walks").nth(1).expect("the lists are there");
    let mut files = 0;
    for block in part.split("```text").skip(1) {
        let words = block.split("```").next().unwrap_or_default().split_whitespace();
        let mut folder = "";
        for word in words {
            if let Some(path) = word.strip_suffix(':') {
                folder = path;
                continue;
            }
            files += 1;
            let file = Path::new(folder).join(format!("{word}.rs"));
            assert!(workspace::root().join(&file).exists(), "{} is listed", file.display());
        }
    }
    assert!(files > 200, "{files} files are listed");
}
