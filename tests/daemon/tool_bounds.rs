//! `max_running` and `lock` of a tool: calls wait for each other, and for nothing else.

use ceased_tests::daemon::{Config, Daemon, carriers, marker, wait_until};

const TOOLS: &str = r#"
[[tool]]
name = "single"
run_as = "daemon"
max_output = "64KiB"
max_running = 1
command = ["sleep", "{t}"]
[tool.input.t]
type = "string"
required = true

[[tool]]
name = "locked"
run_as = "daemon"
max_output = "64KiB"
lock = "of:{name}"
command = ["sleep", "{t}"]
[tool.input.t]
type = "string"
required = true
[tool.input.name]
type = "string"
required = true
"#;

fn runs(marker: &str) -> bool {
    !carriers(marker).is_empty()
}

#[test]
fn the_second_call_starts_when_the_first_has_ended() {
    let daemon = Daemon::start(&Config { tools: TOOLS, ..Config::default() });
    let (mut ann, mut bob) = (daemon.peer(), daemon.peer());
    let [first, second, other] = [marker(), marker(), marker()];
    let call = ann.call("single", &format!("{{\"t\":\"{first}\"}}"));
    wait_until("the first runs", || runs(&first));
    let waits = bob.call("single", &format!("{{\"t\":\"{second}\"}}"));
    // Another tool, asked for later on the same connection, goes on.
    bob.call("hang", &format!("{{\"t\":\"{other}\"}}"));
    wait_until("the other tool runs", || runs(&other));
    let echo = bob.call("echo", r#"{"text":"x"}"#);
    assert_eq!(bob.text(echo), "x");
    assert!(!runs(&second), "it waits for the first");
    ann.cancel(call);
    wait_until("the second runs", || runs(&second));
    bob.cancel(waits);
    wait_until("it has ended", || !runs(&second));
}

#[test]
fn a_lock_is_one_for_each_value_of_its_input() {
    let daemon = Daemon::start(&Config { tools: TOOLS, ..Config::default() });
    let mut peer = daemon.peer();
    let mut call = |name: &str| {
        let marker = marker();
        (peer.call("locked", &format!("{{\"t\":\"{marker}\",\"name\":\"{name}\"}}")), marker)
    };
    let (held, first) = call("a");
    let (_, other) = call("b");
    let (taken_back, never) = call("a");
    let (_, last) = call("a");
    wait_until("two locks are held", || runs(&first) && runs(&other));
    assert!(!runs(&never) && !runs(&last));
    peer.cancel(taken_back);
    peer.cancel(held);
    wait_until("the next of the lock runs", || runs(&last));
    assert!(!runs(&never), "it was taken back");
}
