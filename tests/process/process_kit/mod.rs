//! Shared parts of the process suites: a supervisor with its reports, and searches of the process
//! table.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceased::process::JobId;
use ceased::process::guard::Program;
use ceased::process::{
    Cgroup, Containment, Ending, Exit, Isolation, Launch, Order, Orphans, Report, Supervisor,
};

/// Bound of every wait, generous for a busy machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Tiers of containment: two with the full STOP-01, one without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Cgroup,
    Guard,
    Groups,
}

impl Tier {
    /// The containment, with `program` as guard and keeper; `None` with a printed line if the
    /// machine grants no control groups.
    pub(crate) fn containment(self, program: Program) -> Option<Containment> {
        match self {
            Self::Cgroup => match Cgroup::create() {
                Ok(group) => Some(Containment::Cgroup { group, keeper: Some(program) }),
                Err(error) => {
                    let is_must = std::env::var_os("CEASED_TEST_NEEDS_CGROUP").is_some();
                    assert!(!is_must, "control groups are needed: {error}");
                    eprintln!("SKIPPED: no control groups here: {error}");
                    None
                }
            },
            Self::Guard => Some(Containment::Guard(program)),
            Self::Groups => Some(Containment::Groups),
        }
    }
}

/// A supervisor and its reports.
pub(crate) struct Rig {
    pub(crate) supervisor: Supervisor,
    pub(crate) reports: Receiver<Report>,
    pub(crate) base: Option<PathBuf>,
    is_groups: bool,
    next_job: u64,
}

impl Rig {
    pub(crate) fn new(containment: Containment, orphans: Orphans) -> Self {
        let base = match &containment {
            Containment::Cgroup { group, .. } => Some(group.path().to_owned()),
            Containment::Guard(_) | Containment::Groups => None,
        };
        let is_groups = matches!(containment, Containment::Groups);
        let (send, reports) = channel();
        let report = Box::new(move |report| drop(send.send(report)));
        let supervisor = Supervisor::start(containment, orphans, report).unwrap();
        Self { supervisor, reports, base, is_groups, next_job: 1 }
    }

    /// A launch of a command, to be adapted before [`Rig::launch`].
    pub(crate) fn command(&mut self, argv: &[&str]) -> Launch {
        let job = JobId::new(self.next_job);
        self.next_job += 1;
        Launch {
            job,
            argv: argv.iter().map(Into::into).collect(),
            cwd: None,
            env: Vec::new(),
            inherit: ceased::process::Inherit::default(),
            stdin: None,
            pipes: None,
            user: None,
            isolation: Isolation::None,
            bounds: ceased::process::Bounds::default(),
            output: ceased::process::OutputOptions::kept(64 * 1024),
        }
    }

    pub(crate) fn launch(&self, launch: Launch) -> JobId {
        let job = launch.job;
        self.order(Order::Launch(Box::new(launch)));
        job
    }

    pub(crate) fn run(&mut self, argv: &[&str]) -> JobId {
        let launch = self.command(argv);
        self.launch(launch)
    }

    /// Runs a shell script; `$1` is the marker that its processes carry.
    pub(crate) fn shell(&mut self, script: &str, marker: &str) -> JobId {
        self.run(&["sh", "-c", script, "sh", marker])
    }

    pub(crate) fn order(&self, order: Order) {
        self.supervisor.order(order).unwrap();
    }

    pub(crate) fn report(&self) -> Report {
        self.reports.recv_timeout(TIME_LIMIT).expect("a report in time")
    }

    /// Waits for the tool's line on its progress pipe, which says that it is ready.
    pub(crate) fn wait_ready(&self, job: JobId) {
        let report = self.report();
        assert!(matches!(report, Report::Progress { job: j, .. } if j == job), "{report:?}");
    }

    /// Waits for the end of a job and skips its other reports.
    pub(crate) fn wait_ending(&self, job: JobId) -> Ending {
        loop {
            match self.report() {
                Report::Ended { job: ended, ending } => {
                    assert_eq!(ended, job);
                    return ending;
                }
                Report::Progress { .. }
                | Report::Line { .. }
                | Report::Lingering { .. }
                | Report::Examined { .. }
                | Report::BornEnded { .. }
                | Report::Located { .. }
                | Report::Outlasting { .. }
                | Report::Surveyed { .. } => {}
            }
        }
    }

    pub(crate) fn wait_exit(&self, job: JobId) -> Exit {
        match self.wait_ending(job) {
            Ending::Exited(exit) => {
                // Process groups do not report it.
                let want = (!self.is_groups).then_some(0);
                assert_eq!(exit.survivors, want, "STOP-01");
                *exit
            }
            Ending::NotStarted(reason) => panic!("not started: {reason}"),
        }
    }

    /// Directory of the control group of a job's process.
    pub(crate) fn group_of(&self, pid: i32) -> Option<PathBuf> {
        let path = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let name = path.trim_end().rsplit('/').next().unwrap();
        Some(self.base.as_ref()?.join(name))
    }
}

/// A text unique among the arguments of all processes; `sleep` accepts it as a duration.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("98765.{:07}{n:05}", std::process::id())
}

/// Live processes with a text among their arguments. A zombie has no arguments unless one of its
/// threads lives.
pub(crate) fn carriers(text: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(line) = arguments(&entry.path()) else { continue };
        if std::ffi::OsStr::from_bytes(&line).to_string_lossy().contains(text) {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Arguments of a process, read through its first or another thread.
fn arguments(process: &Path) -> Option<Vec<u8>> {
    let line = fs::read(process.join("cmdline")).ok()?;
    if !line.is_empty() {
        return Some(line);
    }
    let threads = fs::read_dir(process.join("task")).ok()?.flatten();
    let mut lines = threads.filter_map(|thread| fs::read(thread.path().join("cmdline")).ok());
    lines.find(|line| !line.is_empty())
}

/// STOP-01, checked against the process table.
pub(crate) fn assert_none_left(marker: &str) {
    let left = carriers(marker);
    assert!(left.is_empty(), "still alive: {left:?}");
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIME_LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Ids of the children of this process, zombies included.
pub(crate) fn children() -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}
