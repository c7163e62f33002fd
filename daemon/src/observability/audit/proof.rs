//! Proofs of the end of a relayed request: their facts and their sentences (UPS-16).

use std::time::Duration;

use ceased_core::upstream::interface::Proof;

/// Processes that a cancelled relayed request is known to have had ended, and those known to be
/// left (UPS-16).
pub(crate) const fn facts_of(proof: Proof) -> (Option<u32>, Option<u32>) {
    match proof {
        Proof::Unsent | Proof::Quiet => (Some(0), Some(0)),
        Proof::Told
        | Proof::Answered
        | Proof::StreamClosed
        | Proof::SessionEnded
        | Proof::Unknown => (Some(0), None),
        Proof::ChildrenEnded(count) => (Some(count), Some(0)),
        // The whole tree of the instance, which is counted for no single request.
        Proof::Replaced | Proof::Ended => (None, Some(0)),
    }
}

/// The proof as a sentence for people, with the time from the cancel to it.
pub(super) fn sentence(proof: Proof, after: Option<Duration>) -> String {
    let time = after.map_or_else(String::new, |after| format!(" in {}", short(after)));
    match proof {
        Proof::Unsent => "never sent to the server, 0 left".into(),
        Proof::Told => "the server was told; the end of the work is not known".into(),
        Proof::Answered => format!("ended by an answer of the server{time}"),
        Proof::Quiet => {
            format!("ended without an answer, 0 left{time}: no process, no CPU time, no progress")
        }
        Proof::ChildrenEnded(count) => {
            let noun = if count == 1 { "process" } else { "processes" };
            format!("{count} {noun} ended, 0 left{time}")
        }
        Proof::Replaced => format!("the server was replaced and ended, 0 left{time}"),
        Proof::Ended => format!("the server was ended, 0 left{time}"),
        Proof::StreamClosed => {
            format!("its response stream was closed{time}; the end of the work is not known")
        }
        Proof::SessionEnded => {
            format!("the server has ended its session{time}; the end of the work is not known")
        }
        Proof::Unknown => {
            "the server was not reached by the cancel; the end of the work is not known".into()
        }
    }
}

/// A span for people.
pub(super) fn short(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis}ms"),
        _ => format!("{:.1}s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next proof: a new one does not compile without a place here, and so without a test.
    const fn next(proof: Proof) -> Option<Proof> {
        match proof {
            Proof::Unsent => Some(Proof::Told),
            Proof::Told => Some(Proof::Answered),
            Proof::Answered => Some(Proof::Quiet),
            Proof::Quiet => Some(Proof::ChildrenEnded(2)),
            Proof::ChildrenEnded(_) => Some(Proof::Replaced),
            Proof::Replaced => Some(Proof::Ended),
            Proof::Ended => Some(Proof::StreamClosed),
            Proof::StreamClosed => Some(Proof::SessionEnded),
            Proof::SessionEnded => Some(Proof::Unknown),
            Proof::Unknown => None,
        }
    }

    /// UPS-16: each proof has a sentence of its own, which claims an end exactly if one is
    /// established, and 0 processes left exactly if they are counted.
    #[test]
    fn every_proof_has_a_sentence() {
        let mut seen = Vec::new();
        let mut at = Some(Proof::Unsent);
        while let Some(proof) = at {
            let text = sentence(proof, Some(Duration::from_millis(12)));
            let is_open = matches!(
                proof,
                Proof::Told | Proof::StreamClosed | Proof::SessionEnded | Proof::Unknown
            );
            assert_eq!(text.contains("not known"), is_open, "{text}");
            assert_eq!(text.contains("0 left"), facts_of(proof).1 == Some(0), "{text}");
            let is_timed = !matches!(proof, Proof::Unsent | Proof::Told | Proof::Unknown);
            assert_eq!(text.contains(" in 12ms"), is_timed, "{text}");
            assert!(!sentence(proof, None).contains(" in "), "{text}");
            assert!(!seen.contains(&text), "{text}");
            seen.push(text);
            at = next(proof);
        }
        assert_eq!(seen.len(), 10);
        assert!(seen.contains(&"2 processes ended, 0 left in 12ms".into()), "{seen:?}");
    }
}
