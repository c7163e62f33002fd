//! Golden files: transcripts of whole sessions, readable without Rust, and the dialects as a table.
//!
//! A transcript is blocks: events, `----`, the engine's output. `UPDATE=1` writes
//! down its present output.
//!
//! | line | happens |
//! | --- | --- |
//! | `open REVISION` | the next connection (`c1`, `c2`, …) initializes |
//! | `c1> LINE` | that line arrives |
//! | `c1 stops reading`, `c1 reads`, `c1 half-closes`, `c1 is gone` | the peer does so |
//! | `turn` | everything that arrived was handed in |
//! | `j1 done TEXT`, `j1 error TEXT`, `j1 stopped`, `j1 at NUMBER` | the job ends, or got further |
//! | `j1 prints TEXT` | the last line of its output |
//! | `wait MILLISECONDS`, `shut down within MILLISECONDS` | time passes, the end is near |

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::protocol::revision::{ALL, BOTH_ACP};
use ceased_simulator::trace::Input;
use ceased_simulator::workspace;
use ceased_simulator::world::World;

fn updating() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// The engine's output for one line of a transcript.
fn perform(world: &mut World, line: &str) -> Vec<String> {
    world.transcript = Some(Vec::new());
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = |text: &str| text.parse::<u64>().ok();
    let conn = first.strip_prefix('c').map(|name| name.trim_end_matches('>')).and_then(number);
    let job = first.strip_prefix('j').and_then(number).map(JobId::new);
    match (conn.map(ConnId::new), job, first) {
        (Some(conn), ..) if first.ends_with('>') => world.frame(conn, rest),
        (Some(conn), ..) => match rest {
            "stops reading" => world.stop_reading(conn),
            "reads" => world.read_again(conn),
            "half-closes" => world.feed(Input::Finished(conn, AfterInput::Answer)),
            "is gone" => world.lose(conn),
            _ => panic!("nobody knows how to {line:?}"),
        },
        (_, Some(job), _) => match rest.split_once(' ').unwrap_or((rest, "")) {
            ("done", text) => world.done(job, text),
            ("error", text) => world.fail(job, -32000, text),
            ("prints", line) => world.output(job, line),
            ("stopped", _) => world.stopped(job),
            ("at", number) => world.progress(job, number.parse().expect("progress is a number")),
            _ => panic!("nobody knows how to {line:?}"),
        },
        (_, _, "open") => {
            world.open_as(Identity::User(1000), rest);
            // Every session begins alike.
            return Vec::new();
        }
        (_, _, "turn") => world.feed(Input::Turn),
        (_, _, "wait") => world.advance(Duration::from_millis(number(rest).expect("a number"))),
        (_, _, "shut") => {
            let millis = rest.strip_prefix("down within ").and_then(number).expect("a number");
            world.feed(Input::Drain(world.now().at + Duration::from_millis(millis)));
        }
        _ => panic!("nobody knows how to {line:?}"),
    }
    world.transcript.take().unwrap_or_default()
}

/// The transcript as the engine has it now.
fn rewritten(text: &str) -> String {
    let mut world = World::new();
    let mut written = String::new();
    let mut in_answer = false;
    let mut said: Vec<String> = Vec::new();
    for line in text.lines() {
        if in_answer {
            // Its former output; the blank line ends it.
            if line.is_empty() {
                in_answer = false;
                written.push('\n');
            }
            continue;
        }
        let _ = writeln!(written, "{line}");
        if line == "----" {
            for line in said.drain(..) {
                let _ = writeln!(written, "{line}");
            }
            in_answer = true;
        } else if !line.is_empty() && !line.starts_with('#') {
            said.extend(perform(&mut world, line));
        }
    }
    assert!(said.is_empty(), "the transcript does not look at {said:?}");
    written
}

/// CAN-05, CAN-08, CAN-11, TSK-07, TSK-17, TSK-18, RPC-03: the transcripts.
#[test]
fn transcripts() {
    let folder = workspace::root().join("tests/golden/transcripts");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("the transcripts are beside the tests")
        .map(|entry| entry.expect("an entry can be read").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 4, "{} transcripts", paths.len());
    for path in paths {
        let text = fs::read_to_string(&path).expect("a transcript can be read");
        let now = rewritten(&text);
        if updating() {
            fs::write(&path, &now).expect("a transcript can be written");
        } else {
            assert_eq!(text, now, "{} (UPDATE=1 accepts the right side)", path.display());
        }
    }
}

/// The whole difference between the protocol revisions and dialects, as one table.
#[test]
fn dialects() {
    let mut table = String::new();
    for dialect in ALL.into_iter().chain(BOTH_ACP) {
        let _ = writeln!(table, "{dialect:#?}");
    }
    let path = workspace::root().join("tests/golden/dialects.txt");
    if updating() {
        fs::write(&path, &table).expect("the table can be written");
    }
    let golden = fs::read_to_string(&path).expect("the table is beside the tests");
    assert_eq!(golden, table, "UPDATE=1 accepts the right side");
}
