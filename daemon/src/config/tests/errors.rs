//! Every error with its exact text, and properties of all of them.

use std::fmt::Write as _;

use super::*;

const TABLE: &str = include_str!("errors.txt");
/// Number of rows of the table, to detect rows lost by the parser of the table.
const ROWS: usize = 189;

/// The rows of the table: line number, configuration, and expected messages.
fn rows() -> Vec<(usize, String, String)> {
    let mut rows = Vec::new();
    let (mut began, mut file, mut said) = (1, String::new(), String::new());
    let rest = TABLE.lines().skip_while(|line| !line.starts_with("## "));
    for (line, text) in rest.chain([""]).enumerate() {
        if let Some(problem) = text.strip_prefix("=> ") {
            let _ = writeln!(said, "{problem}");
        } else if text.starts_with("## ") || (text.is_empty() && file.trim().is_empty()) {
            file.clear();
            began = line + 1;
        } else if text.is_empty() && !said.is_empty() {
            rows.push((began, std::mem::take(&mut file), std::mem::take(&mut said)));
            began = line + 1;
        } else {
            file.push_str(text);
            file.push('\n');
        }
    }
    rows
}

#[test]
fn every_error_has_the_documented_text() {
    let rows = rows();
    assert_eq!(rows.len(), ROWS);
    for (line, file, expected) in rows {
        let why = parse(&file).expect_err(&file).to_string();
        let said = why.replace("/etc/ceased/config.toml", "F") + "\n";
        assert_eq!(said, expected, "\nrow after line {line} of the table:\n{file}");
    }
}

#[test]
fn every_problem_has_a_place_and_a_hint() {
    for (_, file, _) in rows() {
        let why = parse(&file).expect_err(&file);
        let mut line = 0;
        for problem in why.problems() {
            assert!(problem.line >= line.max(1), "{problem} is out of order");
            assert!(problem.line <= file.lines().count(), "{problem} is past the end");
            assert!(!problem.what.is_empty() && !problem.hint.is_empty(), "{problem}");
            line = problem.line;
        }
    }
}

#[test]
fn socket_path_is_limited_to_107_bytes() {
    let listen = |path: &str| parse(&format!("[[listen]]\ntransport = \"unix\"\npath = {path:?}"));
    assert!(listen(&format!("/{}", "a".repeat(106))).is_ok());
    assert!(listen(&format!("/{}", "a".repeat(107))).is_err());
    // The resolved path counts.
    assert!(listen(&"a".repeat(107 - "/etc/ceased/".len())).is_ok());
    assert!(listen(&"a".repeat(108 - "/etc/ceased/".len())).is_err());
    // The default can be too long as well.
    let own = vec![format!("/{}/ceased/ceased.sock", "r".repeat(100)).into()];
    let sockets = SocketPaths { own, system: None };
    let environment = Environment { sockets, ..environment() };
    let why = Config::parse_in("", Path::new("F"), &environment).expect_err("too long");
    assert!(why.to_string().starts_with("`path` in [[listen]] is 120 bytes long: /rrr"), "{why}");
}

#[test]
fn home_path_without_home_is_rejected() {
    let environment = Environment { home: None, ..environment() };
    let text = "[log]\naudit = \"~/a\"";
    let why = Config::parse_in(text, Path::new("F"), &environment).expect_err("no home");
    assert_eq!(
        why.to_string(),
        "`audit` in [log] is \"~/a\" at F:2; `~/` needs $HOME, which is not set here"
    );
}

#[test]
fn tool_names_are_limited_in_length() {
    let named = |name: &str| parse(&format!("[[tool]]\nname = {name:?}\nbuiltin = \"echo\""));
    for good in ["a", "A.b-c_9", &"x".repeat(128)] {
        assert!(named(good).is_ok(), "{good}");
    }
    for bad in ["", "a/b", "ä", "a b", "a,b", &"x".repeat(129)] {
        assert!(named(bad).is_err(), "{bad}");
    }
}

#[test]
fn number_of_printed_problems_is_bounded() {
    let why = parse(&"[[tool]]\n".repeat(1000)).expect_err("wrong");
    assert_eq!(why.problems().len(), 2000);
    let text = why.to_string();
    assert_eq!(text.lines().count(), 21);
    assert!(text.ends_with("\nand 1980 more problems"), "{text}");
    // A long value is truncated.
    let long = "x".repeat(10_000);
    let why = parse(&format!("[daemon]\nworkers = \"{long}\"")).expect_err("wrong").to_string();
    assert!(why.len() < 300, "{why}");
}

/// A corrupted file yields an error that names a line.
#[test]
fn corrupted_file_yields_an_error() {
    let file = include_str!("../../../../config.toml");
    let answered = |text: &str| {
        if let Err(why) = parse(text) {
            let last = text.lines().count().max(1);
            for problem in why.problems() {
                assert!((1..=last).contains(&problem.line), "{problem} of {last} lines");
            }
        }
    };
    for at in (0..file.len()).step_by(31).filter(|at| file.is_char_boundary(*at)) {
        let (before, after) = file.split_at(at);
        answered(before);
        answered(after);
        for byte in ["\"", "[", "{", "=", "\n", "\u{0}", "\r\n", "ß"] {
            answered(&format!("{before}{byte}{after}"));
        }
    }
    for depth in [100, 10_000, 100_000] {
        answered(&format!("a = {}", "[".repeat(depth)));
        answered(&format!("[[tool]]\ninput_schema = {}", "{ a = ".repeat(depth)));
        answered(&format!("[{}a]", "a.".repeat(depth)));
    }
}
