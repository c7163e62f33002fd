//! The stop of one work, as a table.

use core::time::Duration;

use crate::reason::StopReason;
use crate::supervisor::stop::StopInput::{self, AgentEnded, Answered, Due, Examined, StraysEnded};
use crate::supervisor::stop::TurnStopStep::{
    self, EndStrays, Examine, GiveUp, Nothing, Over, SayOther,
};
use crate::supervisor::stop::{CancelForm, TurnStop};
use crate::time::Instant;
use crate::upstream::interface::Proof;
use crate::upstream::server::OnIgnoredCancel;

type Course<'a> = &'a [(StopInput, TurnStopStep)];

fn assert_courses(courses: &[Course<'_>], on_ignored: OnIgnoredCancel) {
    for course in courses {
        let grace = Duration::from_secs(2);
        let mut now = Instant::ZERO;
        let mut stop =
            TurnStop::new(now, StopReason::Requested, CancelForm::Session, grace, on_ignored);
        for (input, expected) in *course {
            now = if *input == Due { stop.due.unwrap_or(now) } else { now };
            assert_eq!(stop.take(now, *input), *expected, "{input:?} of {course:?}");
        }
    }
}

const fn ended(ended: u32, left: u32) -> StopInput {
    StraysEnded { ended, left }
}

/// SUP-02: an answer ends the stop in every state; the receipt counts ended processes.
#[test]
fn answer_ends_a_stop() {
    let freed = Over(Proof::ChildrenEnded(2));
    let looks = [(Due, SayOther), (Due, Examine), (Examined(Some(2)), EndStrays)];
    let then = |rest: &[(StopInput, TurnStopStep)]| [&looks[..], rest].concat();
    let courses: [Course<'_>; 5] = [
        &[(Answered, Over(Proof::Answered))],
        &[(Due, SayOther), (Answered, Over(Proof::Answered))],
        &[(Due, SayOther), (Due, Examine), (Answered, Over(Proof::Answered))],
        &then(&[(Examined(Some(2)), Nothing), (ended(2, 0), Nothing), (Answered, freed)]),
        // The count is known later than the answer.
        &then(&[(Answered, Nothing), (ended(2, 0), freed)]),
    ];
    assert_courses(&courses, OnIgnoredCancel::Replace);
}

/// SUP-02: a stop without an answer is given up, and over with the end of the agent.
#[test]
fn stop_without_an_answer_is_given_up() {
    let alone = AgentEnded { others: false };
    let courses: [Course<'_>; 4] = [
        &[
            (Due, SayOther),
            (Due, Examine),
            (Due, Nothing),
            (Examined(Some(0)), GiveUp),
            (Due, Nothing),
            (alone, Over(Proof::Ended)),
        ],
        &[
            (Due, SayOther),
            (Due, Examine),
            (Examined(None), GiveUp),
            (AgentEnded { others: true }, Over(Proof::Replaced)),
        ],
        &[
            (Due, SayOther),
            (Due, Examine),
            (Examined(Some(1)), EndStrays),
            (ended(1, 0), Nothing),
            (Due, GiveUp),
        ],
        &[(Due, SayOther), (Due, Examine), (Examined(Some(1)), EndStrays), (ended(0, 1), GiveUp)],
    ];
    assert_courses(&courses, OnIgnoredCancel::Replace);
    let left: Course<'_> = &[
        (Due, SayOther),
        (Due, Over(Proof::Told)),
        (Due, Nothing),
        (Examined(Some(1)), Nothing),
        (ended(1, 0), Nothing),
    ];
    assert_courses(&[left], OnIgnoredCancel::Leave);
}
