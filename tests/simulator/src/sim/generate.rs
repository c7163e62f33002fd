//! The generator: decides the next step, from a seed and the state of the world.

use std::collections::{BTreeMap, VecDeque};

use super::fault::Fault;
use super::judge::Judge;
use super::oracle::Task;
use super::peer::{Peer, Scene, Speaks, TOOLS};
use super::repeats::Repeats;
use super::step::{How, Op, Step, Then, Why, Wish};
use super::swarm::{Kind, Say, Swarm};
use crate::rng::Rng;
use crate::world::WALL_START;

/// See the [module](self).
pub struct Generator<'a> {
    rng: Rng,
    swarm: &'a Swarm,
    peers: BTreeMap<u64, Peer>,
    next_conn: u64,
    next_call: u64,
    next_ask: u64,
    repeats: Repeats,
    /// The last questions, each with its job if not by the host.
    asks: VecDeque<(Option<u64>, u64)>,
    at: u64,
    wall: u64,
    /// A deadline may have passed.
    tick: bool,
}

impl<'a> Generator<'a> {
    /// The generator of `seed` for a world like `swarm`.
    #[must_use]
    pub fn new(seed: u64, swarm: &'a Swarm) -> Self {
        Self {
            rng: Rng::new(seed),
            swarm,
            peers: BTreeMap::new(),
            next_conn: 1,
            next_call: 1,
            next_ask: 1,
            repeats: Repeats::default(),
            asks: VecDeque::new(),
            at: 0,
            wall: WALL_START,
            tick: false,
        }
    }

    /// The next step.
    pub fn next(&mut self, judge: &Judge) -> Step {
        let op = if std::mem::take(&mut self.tick) { Op::Tick } else { self.op(judge) };
        Step { at: self.at, wall: self.wall, op }
    }

    /// The end of the faults: a shutdown, if this run has one.
    pub fn last(&mut self) -> Option<Step> {
        let drains = self.swarm.faults.has(Fault::Drain);
        let within = self.rng.word() % 10_000_000_000;
        drains.then_some(Step { at: self.at, wall: self.wall, op: Op::Drain { within } })
    }

    fn op(&mut self, judge: &Judge) -> Op {
        self.peers.retain(|conn, _| judge.links.contains_key(conn));
        // A step without effect is replaced by another.
        (0..4).find_map(|_| self.try_op(judge)).unwrap_or(Op::Turn)
    }

    fn try_op(&mut self, judge: &Judge) -> Option<Op> {
        let kind = weighted(&mut self.rng, &self.swarm.kinds);
        match kind {
            Kind::Open => self.open(),
            Kind::Speak => self.speak(judge),
            Kind::Deliver => self.deliver(),
            Kind::Work => self.work(judge),
            Kind::Ask => self.ask(judge),
            Kind::Unask => self.unask(),
            Kind::CancelJob => self.job(judge).map(|job| {
                let causes = [Why::Feature, Why::Feature, Why::Limit, Why::Host];
                Op::CancelJob { job, cause: *self.rng.pick(&causes) }
            }),
            Kind::Notify => {
                let job = self.job(judge).filter(|_| !self.rng.once_in(4));
                let from = job.map_or_else(|| self.peer().map(Err), |job| Some(Ok(job)));
                from.map(|from| Op::Notify { from, number: self.at })
            }
            Kind::Window => self.window(),
            Kind::Pass => Some(self.pass(judge)),
            Kind::Turn => Some(Op::Turn),
            Kind::HalfClose => self.half_close(judge),
            Kind::Vanish => self.peer().map(|conn| Op::Vanish { conn }),
            Kind::WallJump => {
                let years = self.rng.word() % 600_000_000_000;
                self.wall = if self.rng.once_in(2) {
                    self.wall.saturating_sub(years)
                } else {
                    self.wall + years
                };
                Some(Op::Turn)
            }
            Kind::Sleep => {
                self.advance(self.rng.clone().word() % 120_000_000_000);
                Some(Op::Turn)
            }
            Kind::Reload => {
                Some(Op::Reload { settings: self.rng.below(self.swarm.settings.len()) })
            }
            Kind::Drain => None,
        }
    }

    /// A job that runs.
    fn job(&mut self, judge: &Judge) -> Option<u64> {
        let running: Vec<u64> = judge.running.iter().copied().collect();
        (!running.is_empty()).then(|| *self.rng.pick(&running))
    }

    fn peer(&mut self) -> Option<u64> {
        let conns: Vec<u64> = self.peers.keys().copied().collect();
        (!conns.is_empty()).then(|| *self.rng.pick(&conns))
    }

    fn open(&mut self) -> Option<Op> {
        if self.peers.len() >= self.swarm.peers {
            return None;
        }
        let conn = self.next_conn;
        self.next_conn += 1;
        let user = u32::try_from(self.rng.below(4)).unwrap_or(0) % self.swarm.users;
        if self.swarm.acp > 0 && self.rng.once_in(self.swarm.acp) {
            let (published, agent) = (self.rng.once_in(2), !self.rng.once_in(3));
            self.peers.insert(conn, Peer::acp(agent, &mut self.rng));
            return Some(Op::OpenAcp { conn, user, published, agent });
        }
        if self.swarm.servers > 0 && self.rng.once_in(self.swarm.servers) {
            self.peers.insert(conn, Peer::server(&mut self.rng));
            let offers = (!self.rng.once_in(3), !self.rng.once_in(3), self.rng.once_in(2));
            let answer_timeout = self.rng.once_in(2).then(|| 1 + self.rng.word() % 10_000_000_000);
            let call = self.next_ask;
            self.next_ask += 1;
            return Some(Op::Connect { conn, user, call, offers, answer_timeout });
        }
        let revision = *self.rng.pick(&self.swarm.revisions);
        self.peers.insert(conn, Peer::new(revision, &mut self.rng));
        Some(Op::Open { conn, user })
    }

    fn speak(&mut self, judge: &Judge) -> Option<Op> {
        let urgent = self.swarm.attentive && self.rng.once_in(3);
        let urgent = if urgent { self.urgent(judge) } else { None };
        let (conn, say) = match urgent {
            Some((conn, say)) => (conn, Some(say)),
            None => (self.peer()?, None),
        };
        let peer = self.peers.get_mut(&conn)?;
        let (rng, swarm, next_call) = (&mut self.rng, self.swarm, &mut self.next_call);
        let repeats = &mut self.repeats;
        peer.speak(Scene { rng, swarm, judge, conn, next_call, repeats }, say);
        // Without delay messages arrive at once.
        if self.swarm.faults.has(Fault::Delay) { None } else { self.hand_over(conn, usize::MAX) }
    }

    /// An awaited message: an answer, a retry, input for a task.
    fn urgent(&mut self, judge: &Judge) -> Option<(u64, Say)> {
        let oracle = judge.oracle.as_ref()?;
        let mut waits = Vec::new();
        for (conn, link) in &judge.links {
            let Some(peer) = self.peers.get(conn) else { continue };
            if peer.memory.owes_an_answer(&link.questions) {
                waits.push((*conn, Say::Answer));
            }
            if link.questions.parked.iter().any(|nonce| oracle.is_parked(*nonce)) {
                waits.push((*conn, Say::Retry));
            }
            if link.unsent.unnamed().next().is_some() || oracle.may_pass_on(*conn) {
                waits.push((*conn, Say::Cancel));
            }
            let identity = oracle.conns.get(conn).map(|conn| &conn.identity);
            if identity.is_some_and(|identity| oracle.asks_for(identity)) && !peer.stateless {
                waits.push((*conn, Say::Call));
            }
            if identity.is_some_and(|identity| oracle.is_missed(identity)) {
                waits.push((*conn, Say::Call));
            }
            let asks =
                |task: &&Task| task.status == "input_required" && Some(&task.owner) == identity;
            if oracle.tasks.iter().any(|task| asks(&task)) {
                let says = [Say::Update, Say::Update, Say::Get, Say::Listen];
                let say = if peer.stateless { *self.rng.pick(&says) } else { Say::Result };
                waits.push((*conn, say));
            }
        }
        (!waits.is_empty()).then(|| *self.rng.pick(&waits))
    }

    fn deliver(&mut self) -> Option<Op> {
        let waiting = self.peers.iter().filter(|(_, peer)| !peer.wire.is_empty());
        let waiting: Vec<u64> = waiting.map(|(conn, _)| *conn).collect();
        let conn = *(!waiting.is_empty()).then(|| self.rng.pick(&waiting))?;
        let most = if self.swarm.faults.has(Fault::Split) && self.rng.once_in(2) {
            1 + self.rng.below(200)
        } else {
            usize::MAX
        };
        self.hand_over(conn, most)
    }

    fn hand_over(&mut self, conn: u64, most: usize) -> Option<Op> {
        let wire = &mut self.peers.get_mut(&conn)?.wire;
        let rest = wire.split_off(wire.floor_char_boundary(most));
        let text = std::mem::replace(wire, rest);
        (!text.is_empty()).then_some(Op::Bytes { conn, text })
    }

    fn work(&mut self, judge: &Judge) -> Option<Op> {
        let faults = self.swarm.faults;
        if faults.has(Fault::LateReport) && !judge.ended.is_empty() && self.rng.once_in(8) {
            let ended: Vec<u64> = judge.ended.iter().copied().collect();
            return Some(self.report(*self.rng.clone().pick(&ended), false));
        }
        let running: Vec<u64> = judge.running.iter().copied().collect();
        if running.is_empty() {
            return None;
        }
        let job = *self.rng.pick(&running);
        let stopping = judge.is_stopping(job);
        // The nature of a job depends on the job, not on the moment.
        let temper = Rng::new(job).word();
        // Not for ever, or nothing else would find a place in a long run.
        let hangs = faults.has(Fault::Hang) && temper.is_multiple_of(2) && !stopping;
        let hangs = hangs && !self.rng.once_in(40);
        let ignores = faults.has(Fault::IgnoreCancel) && temper.is_multiple_of(3) && stopping;
        let talks = if faults.has(Fault::Spam) { 4 } else { 1 };
        if hangs || ignores || self.rng.below(talks + 2) < talks {
            return Some(self.report(job, stopping));
        }
        Some(Op::Done { job, how: self.how(stopping) })
    }

    /// A job asks its requestor, or any peer; or the host asks a peer.
    fn ask(&mut self, judge: &Judge) -> Option<Op> {
        let call = self.next_ask;
        let running: Vec<u64> = judge.running.iter().copied().collect();
        let by_host = running.is_empty() || self.rng.once_in(3);
        let asker = if by_host { None } else { Some(*self.rng.pick(&running)) };
        let to = if by_host || self.rng.once_in(5) { Some(self.asked_peer()?) } else { None };
        let to_peer = to.and_then(|conn| self.peers.get(&conn));
        let speaks = to_peer.map_or(Speaks::Client, Peer::speaks);
        let listed = to_peer.is_some_and(|peer| peer.memory.listed);
        let wish = self.wish(speaks, listed);
        let op = match (asker, to) {
            (Some(job), to) => Op::Ask { job, call, wish, to },
            (None, Some(conn)) => Op::Call { conn, call, wish },
            (None, None) => return None,
        };
        self.next_ask += 1;
        self.asks.push_back((asker, call));
        if self.asks.len() > 16 {
            self.asks.pop_front();
        }
        Some(op)
    }

    /// A peer to ask; most often one that is there to be asked.
    fn asked_peer(&mut self) -> Option<u64> {
        let peers = self.peers.iter().filter(|(_, peer)| peer.speaks() != Speaks::Client);
        let others: Vec<u64> = peers.map(|(conn, _)| *conn).collect();
        if others.is_empty() || self.rng.once_in(3) {
            return self.peer();
        }
        Some(*self.rng.pick(&others))
    }

    /// Something to ask; `listed` when the peer has said which tools it has.
    fn wish(&mut self, of: Speaks, listed: bool) -> Wish {
        let methods: &[&str] = match of {
            Speaks::Client => &[
                "elicitation/create",
                "elicitation/create",
                "sampling/createMessage",
                "roots/list",
                "ping",
                "tools/list",
            ],
            Speaks::Server if listed => {
                &["tools/call", "tools/call", "tools/call", "tools/list", "ping"]
            }
            Speaks::Server => &["tools/list", "tools/list", "tools/call", "ping"],
            Speaks::Acp => &["initialize", "session/prompt", "fs/read_text_file", "session/new"],
        };
        let method = (*self.rng.pick(methods)).to_owned();
        let tool = (method == "tools/call").then(|| (*self.rng.pick(&TOOLS)).to_owned());
        let ttl = if self.rng.once_in(2) { self.rng.word() % 5000 } else { 0 };
        let task = match of {
            Speaks::Server => !self.rng.once_in(3) && tool.is_some(),
            Speaks::Client | Speaks::Acp => self.rng.once_in(8),
        };
        let task = task.then_some(ttl);
        let timeout = 1 + self.rng.word() % 10_000_000_000;
        let cap = 1 + self.rng.word() % 20_000_000_000;
        let extends = self.rng.once_in(2);
        let answer_timeout = self.rng.once_in(2).then_some((timeout, cap, extends));
        Wish { method, tool, task, answer_timeout }
    }

    fn unask(&mut self) -> Option<Op> {
        let asks: Vec<_> = self.asks.iter().copied().collect();
        let (job, call) = *(!asks.is_empty()).then(|| self.rng.pick(&asks))?;
        Some(Op::Unask { job, call })
    }

    fn how(&mut self, stopping: bool) -> How {
        let mut all = vec![How::Good, How::Good, How::Good, How::Bad, How::Error, How::Odd];
        if stopping {
            all.extend([How::Stopped; 6]);
        }
        *self.rng.pick(&all)
    }

    fn report(&mut self, job: u64, stopping: bool) -> Op {
        let lingers = self.swarm.faults.has(Fault::Linger);
        match self.rng.below(if lingers { 6 } else { 5 }) {
            0 => Op::Log { job, level: self.rng.below(8) },
            5 if stopping => Op::Outlast { job, how: self.how(stopping) },
            5 => Op::Linger { job },
            4 if self.swarm.faults.has(Fault::LateReport) && self.rng.once_in(20) => {
                // Some hosts would report twice; this one only after it was given up.
                Op::Progress { job, to: -1, talks: false }
            }
            _ => Op::Progress {
                job,
                to: i32::try_from(self.rng.below(100)).unwrap_or(0),
                talks: self.rng.once_in(2),
            },
        }
    }

    fn window(&mut self) -> Option<Op> {
        let conn = self.peer()?;
        let bytes = match self.rng.below(4) {
            0 | 1 => 0,
            2 => 1 + self.rng.below(300),
            _ => usize::MAX,
        };
        Some(Op::Window { conn, bytes })
    }

    fn half_close(&mut self, judge: &Judge) -> Option<Op> {
        let conn = self.peer()?;
        if judge.links.get(&conn).is_none_or(|link| link.finished) {
            return None;
        }
        let then = match self.rng.below(3) {
            0 => Then::Answer,
            1 => Then::Probe,
            _ => Then::Within(self.rng.word() % 3_000_000_000),
        };
        Some(Op::Finish { conn, then })
    }

    /// Time passes: a little, or exactly to a deadline.
    fn pass(&mut self, judge: &Judge) -> Op {
        let due = judge.deadline().map(|due| due.saturating_sub(self.at));
        let span = match due {
            Some(due) if self.rng.once_in(3) => due,
            // One nanosecond too early is too early.
            Some(due) if self.rng.once_in(10) => due.saturating_sub(1),
            _ => self.rng.word() % self.swarm.pause,
        };
        self.advance(span);
        Op::Turn
    }

    fn advance(&mut self, span: u64) {
        self.at += span;
        self.wall += span / 1_000_000;
        self.tick = true;
    }
}

/// One of several, the heavier the likelier.
pub(super) fn weighted<T: Copy>(rng: &mut Rng, items: &[(T, usize)]) -> T {
    let sum = items.iter().map(|(_, weight)| weight).sum();
    let mut dice = rng.below(sum);
    for (item, weight) in items {
        if dice < *weight {
            return *item;
        }
        dice -= weight;
    }
    unreachable!("the weights add up")
}
