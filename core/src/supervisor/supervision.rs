//! The supervision of one agent for one client: its state and its transition function.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::{Cancel, RequestOutcome};
use crate::ids::{JobId, RequestId};
use crate::policy::account::Account;
use crate::supervisor::abilities::Abilities;
use crate::supervisor::effect::{EndedWork, SupervisionEffect, SupervisionInput, WATCH};
use crate::supervisor::held::HeldFrames;
use crate::supervisor::pieces::Pieces;
use crate::supervisor::reopening::Reopening;
use crate::supervisor::session::Sessions;
use crate::supervisor::stop::{CancelForm, StopInput, TurnStop};
use crate::supervisor::terms::Terms;
use crate::supervisor::texts;
use crate::supervisor::watch::StallWatch;
use crate::supervisor::work::{AgentWork, WorkId, WorkState, WorkView};
use crate::time::Instant;

/// How far the agent is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AgentState {
    /// No process runs; the next request starts one.
    Off,
    /// The host starts it.
    Starting,
    /// Frames pass.
    Live,
    /// A fresh process answers this request of the supervisor before frames pass.
    Preparing { own: RequestId, step: Preparation },
    /// A cancelled turn did not end, or an operator restarts it, and other turns have until then.
    Draining(Instant),
    /// The host ends it; nothing of it is heard any more.
    Ending,
}

/// How a process of an agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// By itself, or it did not start.
    Death,
    /// It ignored a cancel.
    Replaced,
    /// Its client is gone, or it was of no use any more.
    Wanted,
}

/// Requests of the supervisor to a fresh agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Preparation {
    /// `initialize`, as the client sent it.
    Initialize,
    /// The login that the client did.
    Login,
    /// `session/resume` or `session/load` of a session, then the choices of its client.
    Reopen(Box<Reopening>),
}

/// A request of the agent that the client has not answered.
#[derive(Debug)]
pub(super) struct AskedRequest {
    /// Its id at the agent, with the token to answer with.
    pub(super) id: WorkId,
    /// Its id at the client.
    pub(super) at_client: WorkId,
    pub(super) session: Option<Box<str>>,
}

/// A cancel that waits for the end of the turn of the loop: the answer that it crossed may be in
/// the pipe (SUP-04).
#[derive(Debug)]
pub(super) struct Crossing {
    pub(super) frame: Vec<u8>,
    /// The works that it is for.
    pub(super) works: Vec<u64>,
    pub(super) form: CancelForm,
    /// The cancel, if it is not of the client.
    pub(super) cancel: Option<Box<Cancel>>,
}

/// A work that was answered, and whose stop goes on: to the end of the agent if the supervisor has
/// answered it, else to the end of its processes.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    pub(super) number: u64,
    pub(super) job: Option<JobId>,
    pub(super) since: Instant,
    pub(super) stop: TurnStop,
    pub(super) request: Option<RequestId>,
    pub(super) method: Box<str>,
}

/// One client and its agent.
#[derive(Debug)]
pub(crate) struct Supervision {
    pub(super) terms: Terms,
    pub(super) agent: AgentState,
    /// Number of the agent process, from 1.
    pub(super) process: u64,
    /// Why the agent is being ended, for errors.
    pub(super) why: Option<&'static str>,
    /// Whether an operator has ordered that another process takes the place of this one.
    pub(super) is_outdated: bool,
    /// When the handshake, or the reopening of a session, has to be over.
    pub(super) start_by: Option<Instant>,
    /// Whether this process has answered `initialize`.
    pub(super) is_greeted: bool,
    pub(super) abilities: Abilities,
    /// Params of the client's `initialize`.
    pub(super) initialize: Option<Box<str>>,
    /// Method and params of the client's last successful login.
    pub(super) login: Option<(Box<str>, Box<str>)>,
    pub(super) works: Vec<AgentWork>,
    pub(super) last_work: u64,
    /// Works that the supervisor has answered.
    pub(super) given_up: Vec<AnsweredRequest>,
    /// Works that the agent has answered while their processes are being ended.
    pub(super) freed: Vec<AnsweredRequest>,
    pub(super) asked: Vec<AskedRequest>,
    /// Requests of ended agents that the client has not answered, by their id at the client.
    pub(super) stale: BTreeSet<RequestId>,
    pub(super) sessions: Sessions,
    /// Tool calls, terminals and background work (version 2).
    pub(super) pieces: Pieces,
    /// When this process got its first prompt; processes born before are the agent itself.
    pub(super) floor: Instant,
    /// The process that `floor` is of.
    pub(super) floor_of: u64,
    pub(super) held: HeldFrames,
    pub(super) crossing: Vec<Crossing>,
    pub(super) last_own: u64,
    pub(super) watch: StallWatch,
    /// The client has sent everything: how long its requests are answered, and until when now.
    pub(super) finished: Option<Option<(Duration, Instant)>>,
    /// The client is gone, or the daemon shuts down.
    pub(super) is_over: bool,
    /// Whether the client's connection was closed.
    pub(super) is_closed: bool,
    /// Counters for views.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(super) out: Vec<SupervisionEffect>,
}

impl Supervision {
    /// Tells the host of the end of a work, if it records spans. A work that is being stopped counts
    /// as cancelled, whatever its answer.
    pub(super) fn end_span(&mut self, work: &mut AgentWork, outcome: RequestOutcome) {
        if !self.terms.records_spans {
            return;
        }
        let stopped = work.stop.as_ref().map(|stop| stop.since);
        let outcome = stopped.map_or(outcome, |_| RequestOutcome::Cancelled);
        self.out.push(SupervisionEffect::Ended(EndedWork {
            request: work.id.as_ref().map(|id| id.id.clone()),
            method: work.method.clone(),
            trace: work.trace.take(),
            since: work.since,
            stopped,
            outcome,
        }));
    }

    /// One whose waiting frames are charged to this account.
    pub(crate) fn new(terms: Terms, account: &Account) -> Self {
        Self {
            terms,
            agent: AgentState::Off,
            process: 0,
            why: None,
            is_outdated: false,
            start_by: None,
            is_greeted: false,
            abilities: Abilities::default(),
            initialize: None,
            login: None,
            works: Vec::new(),
            last_work: 0,
            given_up: Vec::new(),
            freed: Vec::new(),
            asked: Vec::new(),
            stale: BTreeSet::new(),
            sessions: Sessions::default(),
            pieces: Pieces::default(),
            floor: Instant::ZERO,
            floor_of: 0,
            held: HeldFrames::charged_to(account),
            crossing: Vec::new(),
            last_own: 0,
            watch: StallWatch::default(),
            finished: None,
            is_over: false,
            is_closed: false,
            counts: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// Takes one input and appends its consequences. Total: an input that a state has no use for
    /// changes nothing.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        input: SupervisionInput<'_>,
        effects: &mut Vec<SupervisionEffect>,
    ) {
        core::mem::swap(&mut self.out, effects);
        match input {
            SupervisionInput::Opened => self.start(),
            SupervisionInput::Started => self.on_started(now),
            SupervisionInput::Client(frame) => self.on_client_frame(now, frame),
            SupervisionInput::Agent(frame) => self.on_agent_frame(now, frame),
            SupervisionInput::Cancel { job, cancel } => self.on_cancel(now, job, cancel),
            SupervisionInput::Restart(terms) => self.restart(now, terms),
            SupervisionInput::Turn => self.flush_crossing(now),
            SupervisionInput::Due => self.on_due(now),
            SupervisionInput::Examined { check: WATCH, cpu, .. } => self.on_cpu(now, cpu),
            SupervisionInput::Examined { check, born, .. } => {
                let alone = self.works.iter().any(|it| it.number == check && it.is_alone);
                let born = born.filter(|_| alone);
                self.advance_stop(now, check, StopInput::Examined(born));
            }
            SupervisionInput::StraysEnded { check, ended, left } => {
                if self.on_piece_strays(now, check, ended) {
                    return self.finish(now, effects);
                }
                let input = StopInput::StraysEnded { ended, left };
                self.end_freed(now, Some(check), input);
                self.advance_stop(now, check, input);
                self.release(now);
            }
            SupervisionInput::Ended { status, stderr } => self.on_ended(now, status, stderr),
            SupervisionInput::Finished(span) => {
                self.finished = Some(span.map(|span| (span, now + span)));
            }
            SupervisionInput::Closed => (self.is_over, self.is_closed) = (true, true),
            SupervisionInput::Unusable(why) => self.end(why),
            SupervisionInput::ShutDown => self.shut_down(now),
        }
        self.finish(now, effects);
    }

    fn finish(&mut self, now: Instant, effects: &mut Vec<SupervisionEffect>) {
        self.settle(now);
        core::mem::swap(&mut self.out, effects);
    }

    /// Whether a [`Turn`](SupervisionInput::Turn) has something to do.
    /// Bytes of waiting frames that are charged to the identity of the client.
    pub(crate) fn charged(&self) -> usize {
        self.held.charged()
    }

    pub(crate) fn wants_turn(&self) -> bool {
        !self.crossing.is_empty()
    }

    /// Whether nothing is left of it: neither a process nor a client.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_closed && self.agent == AgentState::Off
    }

    /// Requests that the agent works on.
    pub(crate) fn open_works(&self) -> usize {
        self.works.len()
    }

    /// Requests without an answer: those that the agent works on, and those that wait for it.
    pub(crate) fn open_requests(&self) -> usize {
        self.works.len() + self.held.requests().count()
    }

    /// How the process ends, if it does so now.
    pub(crate) fn end_of_process(&self) -> ProcessEnd {
        match self.agent {
            _ if !self.given_up.is_empty() => ProcessEnd::Replaced,
            AgentState::Ending => ProcessEnd::Wanted,
            AgentState::Off
            | AgentState::Starting
            | AgentState::Live
            | AgentState::Preparing { .. }
            | AgentState::Draining(_) => ProcessEnd::Death,
        }
    }

    /// State of the agent, for views.
    pub(crate) const fn state(&self) -> &'static str {
        match self.agent {
            AgentState::Off => "idle",
            AgentState::Starting | AgentState::Preparing { .. } => "starting",
            AgentState::Live if !self.is_greeted => "starting",
            AgentState::Live => "ready",
            AgentState::Draining(_) => "draining",
            AgentState::Ending => "ending",
        }
    }

    /// Requests and turns that the agent works on, that are being stopped, or that wait, for views.
    pub(crate) fn works(&self) -> impl Iterator<Item = WorkView<'_>> {
        let open = self.works.iter().map(|work| WorkView {
            job: work.job,
            request: work.id.as_ref().map(|id| &id.id),
            method: &work.method,
            since: work.since,
            state: match work.stop {
                Some(_) => WorkState::Cancelling,
                None => WorkState::Running,
            },
            cancel: work.stop.as_ref().and_then(|stop| stop.cancel.as_deref()),
            object: None,
        });
        let pieces = self.pieces.iter().map(|piece| WorkView {
            job: piece.job,
            request: None,
            method: piece.kind.as_str(),
            since: piece.since,
            state: match piece.is_stopping() {
                true => WorkState::Cancelling,
                false => WorkState::Running,
            },
            cancel: piece.stop.as_ref().and_then(|stop| stop.cancel.as_deref()),
            object: Some((piece.kind, &piece.id)),
        });
        // The client has its answer, and the end of the processes is awaited.
        let answered = self.given_up.iter().chain(&self.freed).map(|work| WorkView {
            job: work.job,
            request: None,
            method: &work.method,
            since: work.since,
            state: WorkState::Cancelling,
            cancel: work.stop.cancel.as_deref(),
            object: None,
        });
        let waiting = self.held.requests().map(|(held, id)| WorkView {
            job: held.job,
            request: Some(id),
            method: &held.method,
            since: held.since,
            state: WorkState::Waiting(self.cause_of_waiting()),
            cancel: None,
            object: None,
        });
        open.chain(pieces).chain(answered).chain(waiting)
    }

    /// The cause for which requests wait.
    const fn cause_of_waiting(&self) -> &'static str {
        match &self.agent {
            AgentState::Off | AgentState::Starting => "the start of the agent",
            AgentState::Preparing { step: Preparation::Reopen(_), .. } => {
                "its session to be opened again"
            }
            AgentState::Preparing { .. } => "the start of the agent",
            AgentState::Draining(_) | AgentState::Ending => "the restart of the agent",
            AgentState::Live => "the end of a cancelled request",
        }
    }

    /// Numbers the works that the last input began, and the requests that wait since.
    pub(crate) fn number_works(&mut self, mut draw: impl FnMut() -> JobId) {
        for work in self.works.iter_mut().filter(|work| work.job.is_none()) {
            work.job = Some(draw());
        }
        self.pieces.number(&mut draw);
        self.held.number(draw);
    }

    /// Time of the next [`Due`](SupervisionInput::Due).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let stops = self.works.iter().filter_map(|work| work.stop.as_ref()?.due);
        let pieces = self.pieces.iter().filter_map(|piece| piece.stop.as_ref()?.due);
        let drain = match self.agent {
            AgentState::Draining(at) => Some(at),
            AgentState::Off
            | AgentState::Starting
            | AgentState::Live
            | AgentState::Preparing { .. }
            | AgentState::Ending => None,
        };
        let finished = match self.agent {
            AgentState::Off | AgentState::Ending => None,
            AgentState::Starting
            | AgentState::Live
            | AgentState::Preparing { .. }
            | AgentState::Draining(_) => {
                let by = self.finished.flatten().map(|(_, by)| by);
                by.filter(|_| self.start_by.is_none())
            }
        };
        let own = [self.start_by, drain, finished, self.watch_deadline()];
        stops.chain(pieces).chain(own.into_iter().flatten()).min()
    }

    /// A request was answered: a client that has sent everything may get one more answer.
    pub(super) fn note_answer(&mut self, now: Instant) {
        if let Some(Some((span, by))) = &mut self.finished {
            *by = now + *span;
        }
    }

    fn on_due(&mut self, now: Instant) {
        if self.start_by.is_some_and(|at| at <= now) {
            self.start_by = None;
            self.end("it did not answer within start_timeout");
        }
        if matches!(self.agent, AgentState::Draining(at) if at <= now) {
            self.end(match self.is_outdated {
                true => "an operator restarted it, and its drain deadline has passed",
                false => "its drain deadline has passed",
            });
        }
        let due = |work: &&AgentWork| {
            work.stop.as_ref().and_then(|stop| stop.due).is_some_and(|at| at <= now)
        };
        let due: Vec<u64> = self.works.iter().filter(due).map(|work| work.number).collect();
        for number in due {
            self.advance_stop(now, number, StopInput::Due);
        }
        self.on_pieces_due(now);
        self.on_watch(now);
    }

    /// Follows from the state: an agent without a client is ended, a client that waits for
    /// nothing is closed.
    fn settle(&mut self, now: Instant) {
        let is_idle = self.works.is_empty() && self.held.is_empty();
        let finished = match self.finished {
            Some(until) => {
                let is_late = until.is_some_and(|(_, by)| by <= now);
                is_idle || (is_late && self.start_by.is_none())
            }
            None => false,
        };
        if self.is_over || finished {
            self.end("its client is gone");
            if self.agent == AgentState::Off && !self.is_closed {
                self.is_closed = true;
                self.out.push(SupervisionEffect::CloseClient);
            }
        } else if matches!(self.agent, AgentState::Draining(_))
            && self.works.is_empty()
            && !self.pieces.has_background(None)
        {
            self.end(match self.is_outdated {
                true => texts::OUTDATED,
                false => "it ignored a cancel",
            });
        }
    }
}
