//! The check of one cancel: whether the work of a cancelled request has ended (UPS-05).
//!
//! ```text
//!   Grace ──almost over──► First ──over──► Second ──evidence──► over: quiet, children_ended
//!     │    (examine)         │  (examine)    │ ├──own processes alive──► Ending ──ended──► First
//!     │                      │               │ └──none──► Replacing ──instance ended──► over
//!     └──────────────────────┴───────────────┴── the server answers ──► over: answered
//! ```
//!
//! Of a server by URL no process can be looked at (REM-03):
//!
//! ```text
//!   Remote ──the stream ends, is closed──► over: answered, stream_closed
//!     └──over──► Replacing ──session ended──► over       (or over: told, unknown)
//! ```

use core::time::Duration;

use crate::time::Instant;
use crate::upstream::interface::{CancelFate, ProcessEvidence, Proof};
use crate::upstream::server::OnIgnoredCancel;

/// Time over which the CPU use of an instance is measured. Shorter windows cannot tell a busy
/// server from the bookkeeping of an idle runtime.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);
/// CPU time within [`WINDOW`] from which on an instance is not idle: a fifth of one core.
const BUSY: Duration = Duration::from_millis(20);

/// Wait for a CPU within [`WINDOW`] from which on an instance may compute although it uses none: an
/// idle runtime waits when it wakes, a computing one all the time.
const STARVED: Duration = Duration::from_millis(50);
/// Times that a starved instance is looked at again.
const LOOKS_MAX: u32 = 20;

/// Check of one cancelled request.
#[derive(Debug)]
pub(crate) struct CancelCheck {
    state: CheckState,
    /// When the cancel was written.
    began: Instant,
    grace: Duration,
    on_ignored: OnIgnoredCancel,
    /// CPU time at the first examination.
    cpu: Option<Duration>,
    /// Its wait for a CPU then.
    waited: Option<Duration>,
    /// Times that it was looked at again.
    looks: u32,
    /// Whether the server has answered a ping since.
    pong: bool,
    /// When progress of the request last arrived.
    progress: Option<Instant>,
    /// Processes of the request that were ended.
    ended: u32,
    /// Whether a server by URL has accepted the cancel.
    is_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Remote,
    Grace,
    First,
    Second,
    Ending,
    Replacing,
}

/// Something that happens to a check.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CheckInput {
    /// Its timer is due.
    TimerDue,
    /// The kernel was asked.
    Examined(ProcessEvidence),
    /// The processes of the request were ended, but for so many.
    StraysEnded { ended: u32, left: u32 },
    /// The server answered the cancelled request.
    Answered,
    /// The server answered a ping.
    Pong,
    /// Progress of the request arrived.
    Progress,
    /// The fate of the cancel at a server by URL.
    Fate(CancelFate),
}

/// Other requests of the instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// No other request was in flight at any time since the start of this one.
    pub(crate) exclusive: bool,
    /// No other request is in flight now.
    pub(crate) alone: bool,
}

/// Consequence of an input. The engine carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckEffect {
    /// Nothing.
    Ignored,
    /// Ask the kernel, and wait so long for the next step.
    ExamineAndWait(Duration),
    /// Ask the kernel.
    Examine,
    /// End the processes that were born since the start of the request.
    EndStrays,
    /// Replace the instance; its end ends the check.
    Replace,
    /// The check is over.
    Over(Proof),
}

impl CancelCheck {
    /// A check of a cancel that is being written now, and how long to wait for its first step.
    pub(crate) fn new(
        now: Instant,
        grace: Duration,
        on_ignored: OnIgnoredCancel,
    ) -> (Self, Duration) {
        let check = Self {
            state: CheckState::Grace,
            began: now,
            grace,
            on_ignored,
            cpu: None,
            waited: None,
            looks: 0,
            pong: false,
            progress: None,
            ended: 0,
            is_told: false,
        };
        (check, grace.saturating_sub(WINDOW))
    }

    /// A check of a cancel at a server by URL, and how long to wait for its fate.
    pub(crate) fn remote(
        now: Instant,
        grace: Duration,
        on_ignored: OnIgnoredCancel,
    ) -> (Self, Duration) {
        let (check, _) = Self::new(now, grace, on_ignored);
        (Self { state: CheckState::Remote, ..check }, grace)
    }

    /// The proof of a cancel at a server by URL that neither ended the call nor its session.
    pub(crate) const fn remote_proof(&self) -> Proof {
        if self.is_told { Proof::Told } else { Proof::Unknown }
    }

    /// Whether the instance is being replaced for it.
    pub(crate) fn replaces(&self) -> bool {
        self.state == CheckState::Replacing
    }

    /// Takes one input. Total: an input that a state has no use for changes nothing.
    pub(crate) fn take(
        &mut self,
        input: CheckInput,
        around: Surroundings,
        now: Instant,
    ) -> CheckEffect {
        match (self.state, input) {
            (CheckState::Replacing | CheckState::Remote, CheckInput::Fate(CancelFate::Told)) => {
                self.is_told = true;
                CheckEffect::Ignored
            }
            (CheckState::Replacing, _) => CheckEffect::Ignored,
            (_, CheckInput::Fate(CancelFate::Unsent)) => CheckEffect::Over(Proof::Unsent),
            (_, CheckInput::Fate(CancelFate::StreamEnded)) => CheckEffect::Over(Proof::Answered),
            (_, CheckInput::Fate(CancelFate::StreamClosed)) => {
                CheckEffect::Over(Proof::StreamClosed)
            }
            (_, CheckInput::Fate(CancelFate::Told | CancelFate::Failed)) => CheckEffect::Ignored,
            (CheckState::Remote, CheckInput::TimerDue) => match self.on_ignored {
                OnIgnoredCancel::Replace => self.enforce(),
                OnIgnoredCancel::Leave => CheckEffect::Over(self.remote_proof()),
            },
            (_, CheckInput::Answered) => CheckEffect::Over(Proof::Answered),
            (_, CheckInput::Pong) => {
                self.pong = true;
                CheckEffect::Ignored
            }
            (_, CheckInput::Progress) => {
                self.progress = Some(now);
                CheckEffect::Ignored
            }
            (CheckState::Grace, CheckInput::TimerDue) => self.look_first(),
            (CheckState::First, CheckInput::Examined(found)) => {
                (self.cpu, self.waited) = (found.cpu, found.waited);
                CheckEffect::Ignored
            }
            (CheckState::First, CheckInput::TimerDue) => {
                self.state = CheckState::Second;
                CheckEffect::Examine
            }
            (CheckState::Second, CheckInput::Examined(found)) => self.judge(found, around, now),
            (CheckState::Ending, CheckInput::StraysEnded { ended, left: 0 }) => {
                self.ended = self.ended.saturating_add(ended);
                // A call that started several generations of processes is looked at again.
                self.look_first()
            }
            (CheckState::Ending, CheckInput::StraysEnded { ended, left: _ }) => {
                self.ended = self.ended.saturating_add(ended);
                self.enforce()
            }
            (CheckState::Second | CheckState::Ending, CheckInput::TimerDue)
            | (
                CheckState::Remote | CheckState::Grace | CheckState::Ending,
                CheckInput::Examined(_),
            )
            | (
                CheckState::Remote | CheckState::Grace | CheckState::First | CheckState::Second,
                CheckInput::StraysEnded { .. },
            ) => CheckEffect::Ignored,
        }
    }

    fn look_first(&mut self) -> CheckEffect {
        self.state = CheckState::First;
        (self.cpu, self.waited) = (None, None);
        CheckEffect::ExamineAndWait(WINDOW)
    }

    fn judge(&mut self, found: ProcessEvidence, around: Surroundings, now: Instant) -> CheckEffect {
        let may_end = self.on_ignored == OnIgnoredCancel::Replace && around.exclusive;
        // A process that SIGKILL ended may be replaced by its parent only so often.
        if found.born.is_some_and(|born| born > 0) && may_end && self.ended < u32::MAX / 2 {
            self.state = CheckState::Ending;
            return CheckEffect::EndStrays;
        }
        // Progress that crossed the cancel on its way is no sign of work.
        let from = self.began + self.grace / 2;
        let silent = self.progress.is_none_or(|at| at < from && at < now);
        let idle = !around.alone
            || match (self.cpu, found.cpu) {
                (Some(before), Some(after)) => after.saturating_sub(before) <= BUSY,
                // UPS-05: a fact that is not known is no evidence.
                (None, _) | (_, None) => false,
            };
        if found.born == Some(0) && self.pong && silent && idle {
            // UPS-05: without a CPU, the use of none is no evidence.
            if around.alone && self.is_starved(found) {
                self.looks += 1;
                return match self.looks > LOOKS_MAX {
                    true => self.enforce(),
                    false => self.look_first(),
                };
            }
            return CheckEffect::Over(match self.ended {
                0 => Proof::Quiet,
                ended => Proof::ChildrenEnded(ended),
            });
        }
        self.enforce()
    }

    /// Whether the instance had no CPU for half of the time between the two examinations.
    fn is_starved(&self, found: ProcessEvidence) -> bool {
        let waits = self.waited.zip(found.waited);
        waits.is_some_and(|(before, after)| after.saturating_sub(before) >= STARVED)
    }

    fn enforce(&mut self) -> CheckEffect {
        match self.on_ignored {
            OnIgnoredCancel::Replace => {
                self.state = CheckState::Replacing;
                CheckEffect::Replace
            }
            OnIgnoredCancel::Leave => CheckEffect::Over(Proof::Told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);
    const ALONE: Surroundings = Surroundings { exclusive: true, alone: true };
    const SHARED: Surroundings = Surroundings { exclusive: false, alone: false };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn seen(born: impl Into<Option<u32>>, cpu: impl Into<Option<u64>>) -> CheckInput {
        let cpu = cpu.into().map(Duration::from_millis);
        CheckInput::Examined(ProcessEvidence { born: born.into(), cpu, waited: None })
    }

    /// Runs a check up to its second examination, whose effect is returned.
    fn run(inputs: &[(u64, CheckInput)], around: Surroundings, leave: bool) -> CheckEffect {
        let on = if leave { OnIgnoredCancel::Leave } else { OnIgnoredCancel::Replace };
        let (mut check, wait) = CancelCheck::new(at(0), GRACE, on);
        assert_eq!(wait, Duration::from_millis(1900));
        let mut last = CheckEffect::Ignored;
        for (millis, input) in inputs {
            last = check.take(*input, around, at(*millis));
        }
        last
    }

    /// UPS-05: the table of evidence.
    #[test]
    fn every_combination_of_evidence_is_judged() {
        use CheckInput::{Pong, Progress, StraysEnded, TimerDue};
        let quiet = [(5, Pong), (1900, TimerDue), (1901, seen(0, 50)), (2000, TimerDue)];
        let after = |extra: &[(u64, CheckInput)]| {
            let mut all = alloc::vec::Vec::from(quiet);
            all.extend_from_slice(extra);
            all
        };
        let over = CheckEffect::Over;
        for (extra, around, expected) in [
            (&[(2001, seen(0, 60))][..], ALONE, over(Proof::Quiet)),
            (&[(2001, seen(0, 71))], ALONE, CheckEffect::Replace),
            (&[(2001, seen(0, 140))], SHARED, over(Proof::Quiet)),
            (&[(2001, seen(0, None))], ALONE, CheckEffect::Replace),
            (&[(2001, seen(None, 50))], ALONE, CheckEffect::Replace),
            (&[(2001, seen(1, 50))], ALONE, CheckEffect::EndStrays),
            (&[(2001, seen(1, 50))], SHARED, CheckEffect::Replace),
            (&[(2000, Progress), (2001, seen(0, 50))], ALONE, CheckEffect::Replace),
            (
                &[
                    (2001, seen(2, 50)),
                    (2010, StraysEnded { ended: 2, left: 0 }),
                    (2011, seen(0, 50)),
                    (2110, TimerDue),
                    (2111, seen(0, 50)),
                ],
                ALONE,
                over(Proof::ChildrenEnded(2)),
            ),
            (
                &[(2001, seen(2, 50)), (2010, StraysEnded { ended: 1, left: 1 })],
                ALONE,
                CheckEffect::Replace,
            ),
        ] {
            assert_eq!(run(&after(extra), around, false), expected, "{extra:?}");
        }
        assert_eq!(run(&after(&[(2001, seen(0, 140))]), ALONE, true), over(Proof::Told));
        // With `leave`, no process is ended.
        assert_eq!(run(&after(&[(2001, seen(1, 50))]), ALONE, true), over(Proof::Told));
        let no_pong = [quiet[1], quiet[2], quiet[3], (2001, seen(0, 50))];
        assert_eq!(run(&no_pong, ALONE, false), CheckEffect::Replace);
        let early = [(100, Progress), quiet[0], quiet[1], quiet[2], quiet[3], (2001, seen(0, 50))];
        assert_eq!(run(&early, ALONE, false), over(Proof::Quiet));
    }

    /// UPS-05: an instance that got no CPU is looked at again, until it had some or has waited for it
    /// too often to be idle.
    #[test]
    fn starved_instance_is_not_quiet() {
        let seen = |cpu: u64, waited: u64| {
            let (cpu, waited) = (Duration::from_millis(cpu), Duration::from_millis(waited));
            let found = ProcessEvidence { born: Some(0), cpu: Some(cpu), waited: Some(waited) };
            CheckInput::Examined(found)
        };
        let look = |check: &mut CancelCheck, before: CheckInput, after: CheckInput, around| {
            assert_eq!(check.take(before, around, at(2001)), CheckEffect::Ignored);
            assert_eq!(check.take(CheckInput::TimerDue, around, at(2100)), CheckEffect::Examine);
            check.take(after, around, at(2101))
        };
        let begin = || {
            let (mut check, _) = CancelCheck::new(at(0), GRACE, OnIgnoredCancel::Replace);
            check.take(CheckInput::Pong, ALONE, at(5));
            check.take(CheckInput::TimerDue, ALONE, at(1900));
            check
        };
        let again = CheckEffect::ExamineAndWait(WINDOW);
        let mut check = begin();
        assert_eq!(look(&mut check, seen(50, 0), seen(55, 95), ALONE), again);
        assert_eq!(
            look(&mut check, seen(55, 95), seen(60, 144), ALONE),
            CheckEffect::Over(Proof::Quiet)
        );
        let mut check = begin();
        assert_eq!(look(&mut check, seen(50, 0), seen(55, 95), ALONE), again);
        assert_eq!(look(&mut check, seen(55, 95), seen(99, 140), ALONE), CheckEffect::Replace);
        let mut check = begin();
        for _ in 0..LOOKS_MAX {
            assert_eq!(look(&mut check, seen(50, 0), seen(50, 99), ALONE), again);
        }
        assert_eq!(look(&mut check, seen(50, 0), seen(50, 99), ALONE), CheckEffect::Replace);
        // Others wait for a CPU, too.
        let over = CheckEffect::Over(Proof::Quiet);
        assert_eq!(look(&mut begin(), seen(50, 0), seen(50, 99), SHARED), over);
    }

    /// UPS-05: an answer is evidence in every state but that of a replacement under way.
    #[test]
    fn answer_ends_the_check() {
        let (mut check, _) = CancelCheck::new(at(0), GRACE, OnIgnoredCancel::Replace);
        let effect = check.take(CheckInput::Answered, ALONE, at(1));
        assert_eq!(effect, CheckEffect::Over(Proof::Answered));
        check.state = CheckState::Replacing;
        assert_eq!(check.take(CheckInput::Answered, ALONE, at(1)), CheckEffect::Ignored);
    }
}
