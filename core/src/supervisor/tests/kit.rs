//! A supervision without a host.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Cancel;
use crate::births::Births;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId};
use crate::policy::account::Account;
use crate::supervisor::effect::{SupervisionEffect, SupervisionInput, WATCH};
use crate::supervisor::supervision::Supervision;
use crate::supervisor::terms::Terms;
use crate::time::Instant;
use crate::upstream::server::OnIgnoredCancel;

pub(super) const GRACE: Duration = Duration::from_secs(2);

pub(super) struct World {
    pub(super) supervision: Supervision,
    pub(super) now: Instant,
    last_job: u64,
}

pub(super) fn terms() -> Terms {
    Terms {
        name: "bot".into(),
        start_timeout: Duration::from_secs(60),
        cancel_grace: GRACE,
        drain: Duration::from_secs(30),
        on_ignored: OnIgnoredCancel::Replace,
        turn_timeout: None,
        stall_timeout: None,
        held_bytes_max: 1024,
        identity_bytes_max: 4096,
        works_max: 64,
        records_spans: false,
    }
}

impl World {
    /// A client and an agent that have not said anything.
    pub(super) fn new(terms: Terms) -> Self {
        let mut world = Self {
            supervision: Supervision::new(terms, &Account::default()),
            now: Instant::ZERO,
            last_job: 0,
        };
        assert_eq!(world.input(SupervisionInput::Opened), ["start"]);
        assert_eq!(world.input(SupervisionInput::Started), [""; 0]);
        world
    }

    /// A client with session `s` in an agent that declares this.
    pub(super) fn with_session(terms: Terms, declares: &str) -> Self {
        let mut world = Self::new(terms);
        world.client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"x":[1]}}"#);
        world.agent(&alloc::format!(
            r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":1,"agentCapabilities":{declares}}}}}"#
        ));
        world.client(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[],"z":1}}"#);
        world.agent(r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
        world
    }

    pub(super) fn input(&mut self, input: SupervisionInput<'_>) -> Vec<String> {
        let frame = match input {
            SupervisionInput::Client(frame) | SupervisionInput::Agent(frame) => {
                String::from_utf8_lossy(frame).into_owned()
            }
            SupervisionInput::Opened
            | SupervisionInput::Started
            | SupervisionInput::Cancel { .. }
            | SupervisionInput::Restart(_)
            | SupervisionInput::Turn
            | SupervisionInput::Due
            | SupervisionInput::Examined { .. }
            | SupervisionInput::StraysEnded { .. }
            | SupervisionInput::Ended { .. }
            | SupervisionInput::Finished(_)
            | SupervisionInput::Closed
            | SupervisionInput::Unusable(_)
            | SupervisionInput::ShutDown => String::new(),
        };
        let mut effects = Vec::new();
        self.supervision.take(self.now, input, &mut effects);
        let last_job = &mut self.last_job;
        self.supervision.number_works(|| {
            *last_job += 1;
            JobId::new(*last_job)
        });
        effects.iter().map(|effect| shown(effect, &frame)).collect()
    }

    pub(super) fn client(&mut self, frame: &str) -> Vec<String> {
        self.input(SupervisionInput::Client(frame.as_bytes()))
    }

    pub(super) fn agent(&mut self, frame: &str) -> Vec<String> {
        self.input(SupervisionInput::Agent(frame.as_bytes()))
    }

    pub(super) fn turn(&mut self) -> Vec<String> {
        self.input(SupervisionInput::Turn)
    }

    /// An operator cancels the request of a number.
    pub(super) fn operator_cancels(&mut self, job: u64) -> Vec<String> {
        self.operator_says_cancel(job);
        self.turn()
    }

    /// As [`World::operator_cancels`], before the end of the turn of the loop.
    pub(super) fn operator_says_cancel(&mut self, job: u64) {
        assert_eq!(self.operator_hears(job), [""; 0]);
    }

    /// As [`World::operator_says_cancel`], with its consequences.
    pub(super) fn operator_hears(&mut self, job: u64) -> Vec<String> {
        let (by, conn) = (Identity::User(7), ConnId::new(9));
        let cancel = Cancel { by, conn, request: None, reason: None };
        self.input(SupervisionInput::Cancel { job: JobId::new(job), cancel })
    }

    /// Lets time pass to the next deadline.
    pub(super) fn wait(&mut self) -> Vec<String> {
        self.now = self.supervision.deadline().expect("a deadline");
        self.input(SupervisionInput::Due)
    }

    pub(super) fn prompt(&mut self, id: u32, session: &str) -> Vec<String> {
        self.client(&prompt(id, session))
    }

    /// The agent ends by itself, or because it was told to.
    pub(super) fn ended(&mut self) -> Vec<String> {
        self.input(SupervisionInput::Ended { status: "exit code 3", stderr: "one\n\nlast words" })
    }
}

pub(super) fn prompt(id: u32, session: &str) -> String {
    alloc::format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[]}}}}"#
    )
}

pub(super) const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;

fn shown(effect: &SupervisionEffect, frame: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match effect {
        SupervisionEffect::ForwardToAgent => alloc::format!("agent {frame}"),
        SupervisionEffect::ForwardToClient => alloc::format!("client {frame}"),
        SupervisionEffect::ToAgent(bytes) => alloc::format!("agent {}", text(bytes)),
        SupervisionEffect::ToClient(bytes) => alloc::format!("client {}", text(bytes)),
        SupervisionEffect::Start => "start".to_string(),
        SupervisionEffect::End => "end".to_string(),
        SupervisionEffect::Examine { check: WATCH, .. } => "look".to_string(),
        SupervisionEffect::Examine { births, .. } => alloc::format!("examine{}", works(births)),
        SupervisionEffect::EndStrays { births, .. } => {
            alloc::format!("end strays{}", works(births))
        }
        SupervisionEffect::Cancelled { said, .. } => alloc::format!("cancelled by {said}"),
        SupervisionEffect::Ended(work) => {
            let stopped = if work.stopped.is_some() { " stopped" } else { "" };
            alloc::format!("ended {} {:?}{stopped}", work.method, work.outcome)
        }
        SupervisionEffect::Receipt(receipt) => {
            let by = receipt.cancel.as_ref().map(|cancel| alloc::format!(" by {}", cancel.by));
            let (why, proof) = (receipt.why.as_str(), receipt.proof.as_str());
            let of = receipt.object.as_ref().map(|(kind, id)| alloc::format!(" of {kind} {id}"));
            let (by, of) = (by.unwrap_or_default(), of.unwrap_or_default());
            alloc::format!("receipt {why} {proof}{by}{of}")
        }
        SupervisionEffect::CloseClient => "close".to_string(),
    }
}

/// The works that compete for processes, in seconds, those that are spared in brackets.
fn works(births: &Births) -> String {
    let works = births.works.iter().map(|(at, is_meant)| {
        let at = (*at - Instant::ZERO).as_secs();
        if *is_meant { alloc::format!(" {at}") } else { alloc::format!(" [{at}]") }
    });
    works.collect()
}
