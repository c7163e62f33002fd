//! Watchdogs of turns: the longest time of one, and the longest time without a sign of work.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::births::Births;
use crate::reason::StopReason;
use crate::supervisor::effect::{SupervisionEffect, WATCH};
use crate::supervisor::stop::CancelForm;
use crate::supervisor::supervision::Supervision;
use crate::supervisor::texts;
use crate::supervisor::watch::StallWatch;
use crate::supervisor::work::AgentWork;
use crate::time::Instant;

/// Looks at the CPU time of the tree within one `stall_timeout`.
const LOOKS: u32 = 4;
/// Shortest time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// The part of one core that the bookkeeping of an idle runtime may use: a fiftieth.
const IDLE_PART: u32 = 50;

impl Supervision {
    fn look_span(&self) -> Option<Duration> {
        let span = self.terms.stall_timeout?;
        Some((span / LOOKS).max(LOOK_MIN))
    }

    fn turns(&self) -> impl Iterator<Item = &AgentWork> {
        self.works.iter().filter(|work| work.is_turn() && work.stop.is_none())
    }

    /// A request was sent: a turn is watched.
    pub(super) fn begin_watch(&mut self, now: Instant, is_turn: bool) {
        if is_turn && self.watch.next.is_none() {
            self.watch.cpu = None;
            self.watch.next = self.look_span().map(|_| now);
        }
    }

    pub(super) fn watch_deadline(&self) -> Option<Instant> {
        let turn = self
            .terms
            .turn_timeout
            .and_then(|span| self.turns().map(|work| work.since + span).min());
        let look = self.watch.next.filter(|_| self.turns().next().is_some());
        [turn, look].into_iter().flatten().min()
    }

    pub(super) fn on_watch(&mut self, now: Instant) {
        if let Some(span) = self.terms.turn_timeout {
            self.stop_turns(now, StopReason::TimedOut, |work| work.since + span <= now);
        }
        if self.turns().next().is_none() {
            self.watch = StallWatch::default();
        } else if self.watch.next.is_some_and(|at| at <= now) {
            self.watch.next = self.look_span().map(|span| now + span);
            // The start of processes does not matter, only their CPU time.
            self.out.push(SupervisionEffect::Examine { check: WATCH, births: Births::since(now) });
        }
    }

    /// Judges the CPU time of the tree.
    pub(super) fn on_cpu(&mut self, now: Instant, cpu: Option<Duration>) {
        let Some(span) = self.terms.stall_timeout else { return };
        let before = self.watch.cpu;
        self.watch.cpu = cpu.map(|cpu| (now, cpu));
        let is_idle = match (before, cpu) {
            (Some((at, before)), Some(cpu)) => cpu.saturating_sub(before) <= (now - at) / IDLE_PART,
            // A fact that is not known is no evidence.
            (None, _) | (_, None) => false,
        };
        if !is_idle {
            self.works.iter_mut().for_each(|work| work.active = now);
            return;
        }
        // An agent that waits for its client does not stall.
        if self.asked.is_empty() {
            self.stop_turns(now, StopReason::Limit, |work| work.active + span <= now);
        }
    }

    /// Stops turns of the supervisor's own accord (ACP-07).
    fn stop_turns(&mut self, now: Instant, why: StopReason, is_due: impl Fn(&AgentWork) -> bool) {
        let due: Vec<(u64, Box<str>)> = self
            .turns()
            .filter(|work| is_due(work))
            .filter_map(|work| Some((work.number, work.session.clone()?)))
            .collect();
        for (number, session) in due {
            self.out.push(SupervisionEffect::ToAgent(texts::cancel_session(&session)));
            self.begin_stop(now, number, CancelForm::Session, why);
        }
    }
}
