//! Throw-away jobs: each probed process runs contained and bounded, and nothing of it is left.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceased_process::{
    Bounds, CommandPipes, Containment, Controller, Ending, Evidence, Inherit, JobId, Launch, Order,
    Orphans, Process, Report, SharedOutput, Supervisor,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::process::{Pid, Signal, kill_process};

use super::finding::{Checked, Findings};
use super::text;

/// Time in which the supervisor answers a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Time in which killed processes end.
const KILLED_WITHIN: Duration = Duration::from_secs(15);
/// Lookups in which processes of a job that runs are seen, unless they are hidden from this user. A
/// number, since on a busy machine each takes long.
const LOOKUPS: usize = 25;
/// Time in which a command that does not start has ended.
const FAILS_WITHIN: Duration = Duration::from_millis(200);
/// Time between two lookups of the processes of a job.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Receivers of reports.
#[derive(Debug, Default)]
struct Desk {
    jobs: Mutex<BTreeMap<JobId, Sender<Report>>>,
    tickets: Mutex<BTreeMap<u64, Sender<Report>>>,
}

impl Desk {
    fn deliver(&self, report: Report) {
        match &report {
            Report::Ended { job, .. }
            | Report::Lingering { job }
            | Report::Outlasting { job, .. } => {
                if let Some(sender) = lock(&self.jobs).get(job) {
                    let _ = sender.send(report);
                }
            }
            Report::Surveyed { ticket, .. } | Report::Examined { ticket, .. } => {
                if let Some(sender) = lock(&self.tickets).remove(ticket) {
                    let _ = sender.send(report);
                }
            }
            Report::Progress { .. }
            | Report::Line { .. }
            | Report::BornEnded { .. }
            | Report::Located { .. } => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of all jobs of a probe.
#[derive(Debug)]
pub(crate) struct Arena {
    supervisor: Supervisor,
    desk: Arc<Desk>,
    last: AtomicU64,
    bounds: Bounds,
    /// Names of processes that outlived their command.
    ended: Mutex<Vec<String>>,
    left: AtomicU32,
    is_second_look: AtomicBool,
    /// Name of the containment.
    containment: &'static str,
    /// Bounds without effect, and a weak containment.
    notes: Vec<String>,
}

impl Arena {
    /// An arena in this containment, with bounds on the memory and on the processes of each job.
    pub(crate) fn new(
        mut containment: Containment,
        memory_max: u64,
        pids_max: u32,
    ) -> io::Result<Self> {
        let (memory_max, pids_max) = (Some(memory_max), Some(pids_max));
        let bounds = Bounds { memory_max, pids_max, ..Bounds::default() };
        let unenforced = containment.enable(&bounds.controllers());
        let options = unenforced.iter().map(|it| match it.controller {
            Controller::Memory => "--memory-max",
            Controller::Pids => "--pids-max",
            Controller::Cpu => "CPU bounds",
        });
        let options: Vec<&str> = options.collect();
        let mut notes = Vec::new();
        if !options.is_empty() {
            notes.push(format!("without effect on this machine: {}", options.join(", ")));
        }
        notes.extend(containment.weakness().map(str::to_owned));
        let name = containment.name();
        let desk = Arc::new(Desk::default());
        let known = Arc::clone(&desk);
        let report = Box::new(move |report| known.deliver(report));
        let supervisor = Supervisor::start(containment, Orphans::Leave, report)?;
        let (ended, left) = (Mutex::default(), AtomicU32::new(0));
        let (last, is_second_look) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self {
            supervisor,
            desk,
            last,
            bounds,
            ended,
            left,
            is_second_look,
            containment: name,
            notes,
        })
    }

    /// From now on failed observations are made once more.
    pub(crate) fn begin_second_look(&self) {
        self.is_second_look.store(true, Ordering::Relaxed);
    }

    /// Whether failed observations are made once more.
    pub(crate) fn is_second_look(&self) -> bool {
        self.is_second_look.load(Ordering::Relaxed)
    }

    /// Starts a command with these pipes.
    pub(crate) fn start(&self, argv: &[OsString], pipes: CommandPipes) -> Job<'_> {
        self.start_with(argv, Vec::new(), pipes)
    }

    /// As [`Arena::start`], with more variables in its environment.
    pub(crate) fn start_with(
        &self,
        argv: &[OsString],
        variables: Vec<(OsString, OsString)>,
        pipes: CommandPipes,
    ) -> Job<'_> {
        let id = JobId::new(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, reports) = unbounded();
        lock(&self.desk.jobs).insert(id, sender);
        let mut launch = Launch::new(argv.iter());
        launch.job = id;
        launch.pipes = Some(pipes);
        launch.bounds = self.bounds;
        launch.env = variables;
        launch.inherit = Inherit { everything: true, also: Vec::new() };
        let output = launch.output.kept.clone();
        let _ = self.supervisor.order(Order::Launch(Box::new(launch)));
        Job { arena: self, id, reports, output, has_left: false, ending: None }
    }

    fn ask(&self, order: impl FnOnce(u64) -> Order) -> Option<Report> {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = unbounded();
        lock(&self.desk.tickets).insert(ticket, sender);
        self.supervisor.order(order(ticket)).ok()?;
        answer.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// The findings about a command, without the facts that it tells about itself.
    pub(crate) fn findings(&self, command: &[OsString], checks: Vec<Checked>) -> Findings {
        let mut ended = lock(&self.ended).clone();
        ended.sort_unstable();
        ended.dedup();
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        Findings {
            subject: words.join(" "),
            address: None,
            name: String::new(),
            revision: String::new(),
            tool: None,
            containment: self.containment,
            notes: self.notes.clone(),
            failure: None,
            checks,
            skipped: Vec::new(),
            baseline: None,
            ended,
            left: self.left.load(Ordering::Relaxed),
        }
    }
}

/// The answer about the processes of a job.
enum Survey {
    Running(Vec<Process>),
    Ended,
    /// The supervisor has not answered.
    Unknown,
}

/// A running command and everything that it started. Dropping it ends all of it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    arena: &'a Arena,
    id: JobId,
    reports: Receiver<Report>,
    output: SharedOutput,
    /// Whether the command has exited.
    has_left: bool,
    ending: Option<Ending>,
}

impl Job<'_> {
    /// The live processes; none once the job has ended.
    ///
    /// A job that runs has processes. A list without any is that of its last moment, or of a lookup
    /// that failed; a comparison with it would blame the command itself for being there later.
    pub(crate) fn processes(&self) -> Vec<Process> {
        for _ in 0..LOOKUPS {
            match self.survey() {
                Survey::Running(processes) if processes.is_empty() => sleep(LOOK_AGAIN_AFTER),
                Survey::Running(processes) => return processes,
                Survey::Ended | Survey::Unknown => break,
            }
        }
        Vec::new()
    }

    fn survey(&self) -> Survey {
        let jobs = vec![self.id];
        match self.arena.ask(|ticket| Order::Survey { ticket, jobs }) {
            Some(Report::Surveyed { mut processes, .. }) => {
                processes.pop().map_or(Survey::Ended, |(_, listed)| Survey::Running(listed))
            }
            Some(_) | None => Survey::Unknown,
        }
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let (job, since) = (self.id, Instant::now());
        match self.arena.ask(|ticket| Order::Examine { ticket, job, births: since.into() }) {
            Some(Report::Examined { evidence: Evidence { cpu, .. }, .. }) => cpu,
            Some(_) | None => None,
        }
    }

    /// Whether the command exits until then.
    pub(crate) fn exits(&mut self, until: Instant) -> bool {
        while !self.has_left && self.hear(until) {}
        self.has_left
    }

    /// Whether no process is left until then.
    pub(crate) fn is_gone(&mut self, until: Instant) -> bool {
        while self.ending.is_none() && self.hear(until) {}
        self.ending.is_some()
    }

    fn hear(&mut self, until: Instant) -> bool {
        match self.reports.recv_deadline(until) {
            Ok(Report::Ended { ending, .. }) => {
                self.has_left = true;
                self.ending = Some(ending);
                true
            }
            Ok(Report::Lingering { .. }) => {
                self.has_left = true;
                true
            }
            Ok(Report::Outlasting { exit, .. }) => {
                self.arena.left.fetch_add(exit.survivors.unwrap_or(1), Ordering::Relaxed);
                true
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Sends SIGTERM to the command alone. False if its process is not found although it runs.
    pub(crate) fn terminate(&mut self) -> bool {
        self.signal(Signal::TERM) || self.exits(Instant::now())
    }

    /// Sends SIGKILL to the command alone.
    pub(crate) fn strike(&self) {
        self.signal(Signal::KILL);
    }

    /// Whether the process of the command was found, and got the signal.
    fn signal(&self, signal: Signal) -> bool {
        let pid = command_among(&self.processes()).and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Whether the command ended with a code other than 0, by a signal, or did not start; known once
    /// nothing of it is left.
    pub(crate) const fn has_failed(&self) -> bool {
        match &self.ending {
            Some(Ending::Exited(exit)) => !matches!(exit.code, Some(0)),
            Some(Ending::NotStarted(_)) => true,
            None => false,
        }
    }

    /// As [`Job::has_failed`], of a command that ends soon.
    pub(crate) fn fails(&mut self) -> bool {
        self.is_gone(Instant::now() + FAILS_WITHIN) && self.has_failed()
    }

    /// Sends SIGKILL to everything, and waits for its end.
    pub(crate) fn kill(&mut self) {
        if self.ending.is_none() {
            let _ = self.arena.supervisor.order(Order::Kill(self.id));
            self.is_gone(Instant::now() + KILLED_WITHIN);
        }
    }

    /// Records the live processes as ones that outlived their command; returns their names.
    pub(crate) fn record_survivors(&self) -> Vec<String> {
        let names: Vec<String> = self.processes().into_iter().map(|it| it.name).collect();
        lock(&self.arena.ended).extend(names.iter().cloned());
        names
    }

    /// The way it ended, and its last line on standard error, for a person.
    pub(crate) fn told(&self) -> String {
        let how = match &self.ending {
            Some(Ending::NotStarted(reason)) => reason.clone(),
            Some(Ending::Exited(exit)) => match (exit.code, exit.signal) {
                (Some(code), _) => format!("it exited with code {code}"),
                (None, Some(signal)) => format!("signal {signal} ended it"),
                (None, None) => "it ended".to_owned(),
            },
            None => "it runs".to_owned(),
        };
        let stderr = self.output.captured(ceased_process::Stream::Stderr).text();
        match stderr.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            Some(line) => format!("{how}; its last line on stderr: {}", text::short(line)),
            None => how,
        }
    }
}

/// Process id of the command among its processes.
fn command_among(processes: &[Process]) -> Option<i32> {
    let is_inside = |pid| processes.iter().any(|process| process.pid == pid);
    // Its orphans have a parent outside as well, and a lower process id once ids are used again.
    let roots = processes.iter().filter(|process| !is_inside(process.parent));
    roots.min_by_key(|process| (process.started, process.pid)).map(|process| process.pid)
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.kill();
        lock(&self.arena.desk.jobs).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command is found whether or not the ids of its orphans are lower.
    #[test]
    fn command_is_the_oldest_process_with_a_parent_outside() {
        let process =
            |pid, parent, started| Process { pid, parent, name: String::new(), memory: 0, started };
        let (command, child, orphan) =
            (process(32_000, 1, 50), process(32_001, 32_000, 50), process(300, 1, 51));
        assert_eq!(command_among(&[orphan.clone(), child.clone(), command.clone()]), Some(32_000));
        assert_eq!(command_among(&[command, child]), Some(32_000));
        assert_eq!(command_among(&[orphan]), Some(300));
        assert_eq!(command_among(&[]), None);
    }
}
