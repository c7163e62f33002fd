//! The clients of a soak: each kind repeats one behaviour at random times.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::daemon::peer::request;
use crate::daemon::{Daemon, Peer};
use crate::rng::Rng;

use super::TOKEN;

/// Behaviour of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Pings the daemon.
    Ping,
    /// Calls tools and waits for the results.
    Call,
    /// Calls endless tools and cancels them.
    Cancel,
    /// Creates short-lived tasks, gets them, waits for them, cancels them.
    Task,
    /// Disconnects at random moments.
    Leave,
    /// Requests unknown methods, tools and tasks.
    Flood,
    /// Uses 2026-07-28: tasks of the extension, subscriptions, calls that ask for input.
    Modern,
    /// Repeats calls with a key, and leaves calls that continue as tasks.
    Keyed,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Ping,
    Kind::Call,
    Kind::Cancel,
    Kind::Task,
    Kind::Leave,
    Kind::Flood,
    Kind::Modern,
    Kind::Keyed,
];

/// Rounds of each kind, and the number of rate refusals.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; KINDS.len()], AtomicU64);

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rounds:")?;
        for (kind, count) in KINDS.iter().zip(&self.0) {
            write!(f, " {kind:?} {}", count.load(Ordering::Relaxed))?;
        }
        write!(f, "; refused by a rate: {}", self.1.load(Ordering::Relaxed))
    }
}

/// A client and its context.
pub(super) struct Client<'a> {
    pub(super) daemon: &'a Daemon,
    /// Marker of the tools' processes.
    pub(super) marker: &'a str,
    pub(super) is_over: &'a AtomicBool,
    pub(super) counts: &'a Counts,
    pub(super) rng: Rng,
}

/// Rounds on one connection; then there is a new one.
const ROUNDS_PER_CONNECTION: usize = 200;
/// Longest pause between two rounds, in milliseconds. The pause makes the load that of many clients
/// and independent of the processor's speed.
const PAUSE_MS: usize = 20;

impl Client<'_> {
    /// Repeats the behaviour until the soak ends.
    ///
    /// # Panics
    ///
    /// When the daemon does not serve the client correctly.
    pub(super) fn run(mut self, kind: Kind) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut peer = self.connect(kind);
            for _ in 0..1 + self.rng.below(ROUNDS_PER_CONNECTION) {
                if self.is_over.load(Ordering::Relaxed) {
                    break;
                }
                self.round(kind, &mut peer);
                self.counts.0[kind as usize].fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(self.rng.below(PAUSE_MS) as u64));
                if matches!(kind, Kind::Leave) {
                    break;
                }
            }
        }
    }

    /// A connection of a user, of a token, or of an anonymous peer.
    fn connect(&mut self, kind: Kind) -> Peer {
        let by_token = |daemon: &Daemon| {
            let mut peer = daemon.connect_tcp();
            peer.result("ceased/authenticate", &format!(r#"{{"token":"{TOKEN}"}}"#));
            peer
        };
        let is_modern = matches!(kind, Kind::Modern);
        // An anonymous peer has no keys.
        let choices = if matches!(kind, Kind::Keyed) { 2 } else { 3 };
        let mut peer = match self.rng.below(choices) {
            0 => self.daemon.connect(),
            1 => by_token(self.daemon),
            _ => self.daemon.connect_tcp(),
        };
        if !is_modern {
            peer.initialize();
        }
        peer
    }

    /// The answer to a request, repeated when a rate refuses it.
    pub(super) fn ask(&self, peer: &mut Peer, method: &str, params: &str) -> Value {
        loop {
            let id = peer.request(method, params);
            let answer = peer.answer(id);
            match answer["error"]["data"]["retryAfterMs"].as_u64() {
                Some(wait) => {
                    self.counts.1.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(wait));
                }
                None => return answer,
            }
        }
    }

    fn round(&mut self, kind: Kind, peer: &mut Peer) {
        match kind {
            Kind::Ping => {
                let pings: Vec<u64> = (0..64).map(|_| peer.request("ping", "{}")).collect();
                pings.into_iter().for_each(|id| served(&peer.answer(id)));
            }
            Kind::Call => self.call(peer),
            Kind::Cancel => self.cancel(peer),
            Kind::Task => self.task(peer),
            Kind::Leave => self.leave(peer),
            Kind::Flood => self.flood(peer),
            Kind::Modern => self.modern(peer),
            Kind::Keyed => self.keyed(peer),
        }
    }

    /// Arguments of an endless tool.
    fn endless(&mut self) -> (&'static str, String) {
        match self.rng.below(4) {
            0 => ("sleep", r#"{"ms":86400000}"#.to_owned()),
            1 | 2 => ("hang", format!(r#"{{"t":"{}"}}"#, self.marker)),
            _ => ("family", format!(r#"{{"t":"{}"}}"#, self.marker)),
        }
    }

    fn call(&mut self, peer: &mut Peer) {
        let text = "x".repeat(self.rng.below(10_000));
        let calls = [
            peer.call("echo", &format!(r#"{{"text":"{text}"}}"#)),
            peer.call("sleep", &format!(r#"{{"ms":{}}}"#, self.rng.below(20))),
            peer.call("count", &format!(r#"{{"n":{}}}"#, 1 + self.rng.below(20))),
            peer.call("fail", "{}"),
        ];
        calls.into_iter().for_each(|id| served(&peer.answer(id)));
        peer.forget_notes();
    }

    fn cancel(&mut self, peer: &mut Peer) {
        let calls: Vec<u64> = (0..1 + self.rng.below(4))
            .map(|_| {
                let (tool, arguments) = self.endless();
                peer.call(tool, &arguments)
            })
            .collect();
        if self.rng.once_in(2) {
            sleep(Duration::from_millis(self.rng.below(50) as u64));
        }
        calls.iter().for_each(|id| peer.cancel(*id));
        peer.result("ping", "{}");
        assert!(calls.iter().all(|id| !peer.has_answer(*id)), "a cancelled call was answered");
        peer.forget_notes();
    }

    fn task(&mut self, peer: &mut Peer) {
        let (tool, arguments) = match self.rng.below(8) {
            0..4 => ("sleep", format!(r#"{{"ms":{}}}"#, self.rng.below(100))),
            4..6 => ("count", format!(r#"{{"n":{}}}"#, 1 + self.rng.below(100))),
            6 => ("fail", "{}".to_owned()),
            _ => ("hang", format!(r#"{{"t":"{}"}}"#, self.marker)),
        };
        let ttl = 100 + self.rng.below(3000);
        let params =
            format!(r#"{{"name":"{tool}","arguments":{arguments},"task":{{"ttl":{ttl}}}}}"#);
        let created = self.ask(peer, "tools/call", &params);
        let Some(task) = created["result"]["task"]["taskId"].as_str() else {
            panic!("no task: {created}");
        };
        let of_task = format!(r#"{{"taskId":"{task}"}}"#);
        // A late request gets an error, which is valid too.
        match self.rng.below(5) {
            0 => drop(self.ask(peer, "tasks/get", &of_task)),
            1 if tool != "hang" => drop(self.ask(peer, "tasks/result", &of_task)),
            2 => drop(self.ask(peer, "tasks/list", "{}")),
            3 => {}
            _ => drop(self.ask(peer, "tasks/cancel", &of_task)),
        }
        if tool == "hang" {
            self.ask(peer, "tasks/cancel", &of_task);
        }
        peer.forget_notes();
    }

    fn leave(&mut self, peer: &mut Peer) {
        for _ in 0..self.rng.below(4) {
            let (tool, arguments) = self.endless();
            peer.call(tool, &arguments);
        }
        match self.rng.below(4) {
            0 => drop(peer.result("ping", "{}")),
            1 => peer.send(r#"{"half":"#),
            2 => peer.finish(),
            _ => sleep(Duration::from_millis(self.rng.below(30) as u64)),
        }
    }

    fn flood(&mut self, peer: &mut Peer) {
        let mut asked = Vec::new();
        let mut lines = String::new();
        for _ in 0..100 {
            let unknown = format!("{:032x}", self.rng.word());
            let of_task = format!(r#"{{"taskId":"{unknown}"}}"#);
            let method = *self.rng.pick(&[
                "tasks/get",
                "tasks/cancel",
                "tasks/result",
                "tools/call",
                "no/such",
                "notifications/cancelled",
            ]);
            if method == "notifications/cancelled" {
                lines += &crate::daemon::peer::cancel(self.rng.word());
            } else {
                let id = peer.next_id();
                asked.push(id);
                lines += &request(id, method, &of_task);
            }
            lines.push('\n');
        }
        peer.try_send(lines.as_bytes()).expect("the daemon reads");
        for id in asked {
            let answer = peer.answer(id);
            assert!(answer["error"].is_object(), "no error for an unknown name: {answer}");
        }
    }
}

pub(super) fn served(answer: &Value) {
    assert!(answer["result"].is_object(), "{answer}");
}
