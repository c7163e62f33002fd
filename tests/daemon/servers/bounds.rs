//! Bounds of the resources of a server's instance.

use std::fs;

use ceased_tests::daemon::wait_until;

use super::kit::{Place, say};

/// The niceness in `/proc/PID/stat`, whose second field is a name in parentheses.
fn niceness(pid: &str) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(16).unwrap().parse().unwrap()
}

/// `memory.max` of the control group of a process; `None` if it cannot be read here.
fn memory_max(pid: &str) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let path = |root: &&str| fs::read_to_string(format!("{root}{group}/memory.max")).ok();
    roots.iter().find_map(path)
}

/// Bounds of a `[[server]]` hold for its processes; `check` shows them, and where one has no effect
/// the log names the server.
#[test]
fn bounds_of_a_server_hold_for_its_processes() {
    let place = Place::new();
    let daemon = place.start(&place.server("a", "nice = 7\nmemory_max = \"512MiB\""));
    wait_until("the containment is logged", || daemon.home.log().contains("processes are "));
    let mut peer = daemon.peer();
    let pid = say(&mut peer, "a_pid", "{}");
    assert_eq!(niceness(&pid), 7);
    let check = daemon.home.run(&["check"]);
    assert!(check.out.contains("memory_max 512MiB") && check.out.contains("nice 7"), "{check:?}");
    let log = daemon.home.log();
    if log.contains("memory_max has no effect here: ") {
        assert!(log.contains("the server a"), "{log}");
        assert!(check.err.contains("the server a"), "{check:?}");
    } else {
        assert_eq!(memory_max(&pid).as_deref().map(str::trim), Some("536870912"));
    }
}
