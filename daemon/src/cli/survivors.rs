//! Processes of a daemon's jobs and servers, as a command of the same machine sees them, and those of
//! them that are left after the daemon.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::view::Status;
use ceased_client::printable::clean;
use ceased_process::Process;

/// Time in which killed processes disappear, and those of a guard that has outlived its daemon.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Processes that the daemon had.
#[derive(Debug, Default)]
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// Adds the processes in a detailed status of the daemon.
    pub(super) fn note(&mut self, status: &Status) {
        let jobs = status.host.processes.values();
        let instances = status.host.instances.values().map(|instance| &instance.processes);
        for process in jobs.chain(instances).flatten() {
            // A pid of another namespace is another program here.
            let Some(found) = Process::find(process.pid).filter(|it| it.name == process.name)
            else {
                continue;
            };
            let is_same = |it: &Process| (it.pid, it.started) == (found.pid, found.started);
            if !self.0.iter().any(is_same) {
                self.0.push(found);
            }
        }
    }

    /// Those that are left once killed ones had time to disappear.
    pub(super) fn wait(mut self) -> Self {
        let until = Instant::now() + END_WITHIN;
        loop {
            self.0.retain(is_left);
            if self.0.is_empty() || Instant::now() >= until {
                return self;
            }
            sleep(LOOK_EVERY);
        }
    }

    /// The processes for people; `None` if there are none.
    pub(super) fn text(&self) -> Option<String> {
        let one = |it: &Process| format!("{} ({})", it.pid, clean(&it.name));
        let all: Vec<String> = self.0.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The processes as a JSON array.
    pub(super) fn to_json(&self) -> Value {
        self.0.iter().map(|it| json!({"pid": it.pid, "name": it.name})).collect()
    }
}

/// Whether a process still runs. A pid with another start is that of a later process.
fn is_left(process: &Process) -> bool {
    Process::find(process.pid).is_some_and(|it| it.started == process.started)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    #[test]
    fn process_is_found_until_it_ends() {
        let own = Process::find(i32::try_from(id()).unwrap()).expect("this process runs");
        assert!(is_left(&own));
        assert!(!is_left(&Process { started: own.started + 1, ..own }));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(i32::try_from(child.id()).unwrap()).expect("it runs");
        child.kill().unwrap();
        let all = Processes(vec![process]).wait();
        assert_eq!((all.text(), all.to_json()), (None, json!([])), "a zombie has ended");
        child.wait().unwrap();
    }
}
