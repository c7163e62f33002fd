//! One run of a client against scripted servers: all that it said to them, and their end.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use ceased_process::stdio_pipes;
use serde_json::Value;

use super::context::Context;
use super::observed::Observed;
use super::script::Script;
use super::stage::Stage;
use crate::arena::Job;
use crate::finding::SessionError;
use crate::pipe::{Pipe, Received};

/// Time for which one pipe is read before the next.
const SLICE: Duration = Duration::from_millis(5);
/// Time between two lists of the processes.
const EVERY: Duration = Duration::from_millis(100);
/// Time for messages that were sent before the death of the client.
const IN_FLIGHT: Duration = Duration::from_millis(200);
/// Time limits that a whole run may take.
const LIMITS_A_RUN: u32 = 10;
/// Messages kept of one run.
const MESSAGES_MAX: usize = 10_000;
/// Connections of servers that one run takes, and those in one turn.
const SERVERS_MAX: usize = 16;
const ACCEPTED_A_TURN: usize = 8;

/// A scripted server, started by the client.
#[derive(Debug)]
struct Server {
    pipe: Pipe,
    script: Script,
    /// Its process and the child of that.
    pids: Option<[i32; 2]>,
    is_closed: bool,
    /// Whether the client has left a message unread for longer than the time limit.
    is_deaf: bool,
}

/// A run.
#[derive(Debug)]
pub(super) struct Run<'a> {
    job: Job<'a>,
    stdout: Pipe,
    stage: Stage,
    servers: Vec<Server>,
    hangs: bool,
    timeout: Duration,
    output_max: u64,
    began: Instant,
    /// Every message of the client, with the number of its server.
    heard: Vec<(usize, Value)>,
    last: Instant,
    /// Whether there were too many servers.
    is_crowded: bool,
}

impl<'a> Run<'a> {
    /// Starts the client.
    pub(super) fn start(context: &'a Context, hangs: bool) -> Result<Self, SessionError> {
        let failed = |why: std::io::Error| SessionError(format!("no client can be started: {why}"));
        let stage = Stage::new().map_err(failed)?;
        let (own, theirs) = stdio_pipes().map_err(failed)?;
        let argv = stage.fill(&context.options.command);
        let output_max = context.options.output_max;
        let job = context.arena.start_with(&argv, stage.environment(), theirs);
        let mut stdout = Pipe::new(own.stdout, own.stdin, output_max).map_err(failed)?;
        stdout.close_output();
        let (servers, heard) = (Vec::new(), Vec::new());
        let (timeout, now) = (context.options.timeout, Instant::now());
        Ok(Self {
            job,
            stdout,
            stage,
            servers,
            hangs,
            timeout,
            output_max,
            began: now,
            heard,
            last: now,
            is_crowded: false,
        })
    }

    /// Serves until `done`, the exit of the client, or the time limit without a message.
    fn serve(&mut self, done: impl Fn(&Self) -> bool) {
        loop {
            let now = Instant::now();
            let is_late = now > self.last + self.timeout;
            let is_long = now > self.began + self.timeout * LIMITS_A_RUN;
            let is_flooded = self.flood().is_some();
            if done(self) || is_late || is_long || is_flooded || self.job.exits(now + SLICE) {
                break;
            }
            self.turn();
        }
        // Messages on their way.
        self.turn();
    }

    fn turn(&mut self) {
        for _ in 0..ACCEPTED_A_TURN {
            let Ok((stream, _)) = self.stage.listener.accept() else { break };
            if self.servers.len() >= SERVERS_MAX {
                self.is_crowded = true;
                break;
            }
            let both = stream.try_clone().and_then(|other| {
                stream.set_nonblocking(true)?;
                Pipe::new(other.into(), stream.into(), self.output_max)
            });
            let script = Script::new(self.hangs);
            if let Ok(pipe) = both {
                let (pids, is_closed, is_deaf) = (None, false, false);
                self.servers.push(Server { pipe, script, pids, is_closed, is_deaf });
            }
            self.last = Instant::now();
        }
        let until = Instant::now() + SLICE;
        while matches!(self.stdout.receive(until), Received::Message(_)) {}
        for number in 0..self.servers.len() {
            self.read(number);
        }
    }

    fn read(&mut self, number: usize) {
        let until = Instant::now() + self.timeout;
        let Some(server) = self.servers.get_mut(number) else { return };
        let slice = Instant::now() + SLICE;
        let (mut is_first, mut is_over) = (true, false);
        // Messages that are there already would be taken without a look at the time.
        while self.heard.len() < MESSAGES_MAX && (is_first || !is_over) {
            is_first = false;
            is_over = Instant::now() >= slice;
            match server.pipe.receive(slice) {
                Received::TimedOut => break,
                Received::Closed => {
                    server.is_closed = true;
                    break;
                }
                Received::Message(message) if server.pids.is_none() => {
                    let pid = |name: &str| i32::try_from(message[name].as_i64()?).ok();
                    server.pids = pid("pid").zip(pid("child")).map(|(one, two)| [one, two]);
                }
                Received::Message(message) => {
                    for line in server.script.take(&message) {
                        let line = format!("{line}\n");
                        server.is_deaf = server.is_deaf
                            || !server.pipe.send(line.as_bytes(), until, true).is_empty();
                    }
                    self.heard.push((number, message));
                    self.last = Instant::now();
                }
            }
        }
    }

    /// The fact that the client has written too much, if it has.
    fn flood(&self) -> Option<String> {
        if let Some(flood) = self.stdout.flood() {
            return Some(format!("the client {flood}, to its standard output"));
        }
        if let Some(flood) = self.servers.iter().find_map(|it| it.pipe.flood()) {
            return Some(format!("the client {flood}, to its server"));
        }
        if self.heard.len() >= MESSAGES_MAX {
            return Some(format!("the client has sent more than {MESSAGES_MAX} messages"));
        }
        self.is_crowded.then(|| format!("the client has more than {SERVERS_MAX} servers"))
    }

    /// Fails if the client has written too much: its messages say nothing then.
    fn check_flood(&self) -> Result<(), SessionError> {
        self.flood().map_or(Ok(()), |why| Err(SessionError(why)))
    }

    /// Whether the client has closed the input of each of its servers.
    fn has_closed(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| server.is_closed)
    }

    /// Servers alive, and their children.
    fn alive(&self) -> [usize; 2] {
        let pids: BTreeSet<i32> = self.job.processes().iter().map(|it| it.pid).collect();
        [0, 1].map(|place| {
            let known = self.servers.iter().filter_map(|it| it.pids);
            known.filter(|both| both.get(place).is_some_and(|pid| pids.contains(pid))).count()
        })
    }

    /// Whether a process of a client that has exited may be a server that connects later.
    fn awaits_server(&self) -> bool {
        self.servers.is_empty() && !self.job.processes().is_empty()
    }

    /// Waits for the end of the servers after the client has let go of them.
    fn finish(mut self, has_let_go: bool) -> Observed {
        let until = Instant::now() + self.timeout;
        let mut alive = self.alive();
        while has_let_go && (alive != [0, 0] || self.awaits_server()) && Instant::now() < until {
            self.turn();
            thread::sleep(EVERY);
            alive = self.alive();
        }
        if has_let_go && alive != [0, 0] && self.job.exits(Instant::now()) {
            self.job.record_survivors();
        }
        let garbage = self.servers.iter().flat_map(|it| it.pipe.garbage.iter().cloned()).collect();
        // The way of the end is known once nothing is left.
        let has_left = self.job.exits(Instant::now());
        self.job.kill();
        Observed {
            has_server: !self.servers.is_empty(),
            heard: self.heard,
            garbage,
            has_let_go,
            has_failed: has_left && self.job.has_failed(),
            told: if has_left { self.job.told() } else { "it runs on".to_owned() },
            alive,
        }
    }
}

impl Context {
    /// The run to the end of the script.
    pub(super) fn whole(&self) -> Result<&Observed, SessionError> {
        self.whole.get(&self.arena, || whole(self))
    }

    /// The run without a handshake.
    pub(super) fn hanging(&self) -> Result<&Observed, SessionError> {
        self.hanging.get(&self.arena, || hanging(self))
    }

    /// The run that ends with the death of the client.
    pub(super) fn killed(&self) -> Result<&Observed, SessionError> {
        self.killed.get(&self.arena, || killed(self))
    }
}

/// A run to the end of the client's script.
fn whole(context: &Context) -> Result<Observed, SessionError> {
    let mut run = Run::start(context, false)?;
    run.serve(Run::has_closed);
    let has_let_go = run.has_closed() || run.job.exits(Instant::now());
    // A client may exit some time after it has closed.
    run.serve(|_| false);
    run.check_flood()?;
    Ok(run.finish(has_let_go))
}

/// A run in which no handshake is answered.
fn hanging(context: &Context) -> Result<Observed, SessionError> {
    let mut run = Run::start(context, true)?;
    run.serve(Run::has_closed);
    let has_let_go = run.has_closed() || run.job.exits(Instant::now());
    run.check_flood()?;
    Ok(run.finish(has_let_go))
}

/// A run in which the client is killed during its first call.
fn killed(context: &Context) -> Result<Observed, SessionError> {
    let mut run = Run::start(context, false)?;
    let calls = |run: &Run<'_>| run.heard.iter().any(|(_, it)| it["method"] == "tools/call");
    run.serve(calls);
    run.check_flood()?;
    if !calls(&run) {
        return Err(SessionError(format!("the client calls no tool: {}", run.job.told())));
    }
    run.job.strike();
    let has_let_go = run.is_dead();
    Ok(run.finish(has_let_go))
}

impl Run<'_> {
    /// Whether the death of the command is the death of the client: it says nothing more, and the
    /// input of its servers is closed before the time limit.
    fn is_dead(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < IN_FLIGHT {
            self.turn();
        }
        let said = self.heard.len();
        while !self.has_closed() && begin.elapsed() < self.timeout {
            self.turn();
        }
        self.has_closed() && self.heard.len() == said
    }
}
