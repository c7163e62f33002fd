//! The stop of one work, as a table.

use core::time::Duration;

use crate::reason::StopReason;
use crate::supervisor::stop::{Form, Stop, StopInput, StopStep};
use crate::time::Instant;
use crate::upstream::interface::Proof;
use crate::upstream::server::OnIgnoredCancel;

/// SUP-02: every order of answers and evidence leads to an end.
#[test]
fn every_course_of_a_stop_has_an_end() {
    use StopInput::{AgentEnded, Answered, Due, Examined, StraysEnded};
    use StopStep::{EndStrays, Examine, GiveUp, Nothing, Over, SayOther};
    let ended = |ended, left| StraysEnded { ended, left };
    let courses: [(&[(StopInput, StopStep)], OnIgnoredCancel); 9] = [
        (&[(Answered, Over(Proof::Answered))], OnIgnoredCancel::Replace),
        (&[(Due, SayOther), (Answered, Over(Proof::Answered))], OnIgnoredCancel::Replace),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Due, Nothing),
                (Examined(Some(0)), GiveUp),
                (Due, Nothing),
                (AgentEnded { others: false }, Over(Proof::Ended)),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Examined(None), GiveUp),
                (AgentEnded { others: true }, Over(Proof::Replaced)),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Examined(Some(2)), EndStrays),
                (Examined(Some(2)), Nothing),
                (ended(2, 0), Nothing),
                (Answered, Over(Proof::ChildrenEnded(2))),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Examined(Some(2)), EndStrays),
                (Answered, Nothing),
                (ended(2, 0), Over(Proof::ChildrenEnded(2))),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Examined(Some(1)), EndStrays),
                (ended(1, 0), Nothing),
                (Due, GiveUp),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Examine),
                (Examined(Some(1)), EndStrays),
                (ended(0, 1), GiveUp),
            ],
            OnIgnoredCancel::Replace,
        ),
        (
            &[
                (Due, SayOther),
                (Due, Over(Proof::Told)),
                (Due, Nothing),
                (Examined(Some(1)), Nothing),
            ],
            OnIgnoredCancel::Leave,
        ),
    ];
    for (course, on_ignored) in courses {
        let grace = Duration::from_secs(2);
        let mut now = Instant::ZERO;
        let mut stop = Stop::new(now, StopReason::Requested, Form::Session, grace, on_ignored);
        for (input, expected) in course {
            now = if *input == Due { stop.due.unwrap_or(now) } else { now };
            assert_eq!(stop.take(now, *input), *expected, "{input:?} of {course:?}");
        }
    }
}
