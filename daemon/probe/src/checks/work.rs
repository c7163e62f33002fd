//! The end of the work of a cancelled call.

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::observed::Worked;
use crate::options::ToolCall;
use crate::session::{Session, cancel};
use crate::text::listed;
use crate::weight::Weight;
use crate::work::observe;

/// The observation of a plain call.
fn cancelled_call(context: &Context, call: &ToolCall) -> Result<Worked, SessionError> {
    let mut session = Session::start(context)?;
    let start = |session: &mut Session<'_>| {
        let id = session.next_id();
        let line = session.call(&id, call);
        session.say(&line)?;
        Ok(id)
    };
    observe(&mut session, start, |session, id| session.say(&cancel(id)))
}

fn observed(context: &Context) -> Result<&Worked, SessionError> {
    context.work.get(&context.arena, || cancelled_call(context, context.long()))
}

fn judge_processes(worked: &Worked) -> Finding {
    if !worked.alive.is_empty() {
        return Finding::deviates(format!("alive after the cancel: {}", listed(&worked.alive)));
    }
    match worked.started.is_empty() {
        true => Finding::unknown("the call starts no process"),
        false => Finding::holds(format!("gone: {}", listed(&worked.started))),
    }
}

fn judge_cpu(worked: &Worked) -> Finding {
    let Some([idle, active, end]) = worked.cpu else {
        return Finding::unknown("the CPU time cannot be read");
    };
    if worked.load() != Weight::Heavy {
        let seen = format!("the call uses {active:.0} % of a CPU, too little to tell");
        return Finding::unknown(seen).repeated(worked.rounds);
    }
    let seen = format!("idle {idle:.0} %, during the call {active:.0} %, afterwards {end:.0} %");
    let finding = match worked.rest() {
        Weight::Light => Finding::holds(seen),
        Weight::Unclear => Finding::unknown(format!("{seen}: neither an end of the work nor work")),
        Weight::Heavy => Finding::deviates(seen),
    };
    finding.repeated(worked.rounds)
}

fn judge_writes(worked: &Worked) -> Finding {
    let [idle, active, end] = worked.written;
    if !worked.wrote() {
        return Finding::unknown(match worked.writing {
            0 => "the call writes nothing",
            _ => "the call writes now and then, too little to tell",
        });
    }
    let seen = format!("idle {idle} B/s, during the call {active} B/s, afterwards {end} B/s");
    Finding::of(!worked.writes(), seen)
}

/// CAN-06, STOP-01.
pub(crate) fn processes(context: &Context) -> Result<Finding, SessionError> {
    observed(context).map(judge_processes)
}

/// CAN-06.
pub(crate) fn cpu(context: &Context) -> Result<Finding, SessionError> {
    observed(context).map(judge_cpu)
}

/// CAN-06.
pub(crate) fn writes(context: &Context) -> Result<Finding, SessionError> {
    observed(context).map(judge_writes)
}

/// All three of one observation: the first deviation, else the first that holds.
pub(crate) fn judge_all(worked: &Worked) -> Finding {
    let all = [judge_processes(worked), judge_cpu(worked), judge_writes(worked)];
    let with = |verdict| all.iter().find(move |finding| finding.verdict == verdict);
    use crate::finding::Verdict::{Deviates, Holds};
    let found = with(Deviates).or_else(|| with(Holds));
    found.cloned().unwrap_or_else(|| {
        Finding::unknown("the call starts no process, uses no CPU and writes nothing")
    })
}

/// UPS-05: work that ignores the cancel.
pub(crate) fn stubborn(context: &Context) -> Result<Finding, SessionError> {
    let Some(call) = &context.options.stubborn else {
        return Ok(Finding::unknown("name such a tool with --stubborn-tool"));
    };
    context.stubborn.get(&context.arena, || cancelled_call(context, call)).map(judge_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict::{self, Deviates, Holds, Unknown};
    use crate::work::{After, During};

    /// Samples after a cancel up to the time limit.
    const AFTERWARDS: usize = 60;

    /// Numbers from 0 to 1, the same for each seed.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            f64::from(u32::try_from(state >> 33).unwrap_or_default()) / f64::from(u32::MAX >> 1)
        }
    }

    /// The verdict on a call that uses these percents of a CPU before and after its cancel, each
    /// sample up to so much above or below.
    fn verdict(active: f64, end: f64, swing: f64, seed: u64) -> Verdict {
        let mut random = noise(seed);
        let mut sample = |level: f64| (Some((level + (random() * 2.0 - 1.0) * swing).max(0.0)), 0);
        let mut during = During::new((Some(0.5), 0));
        while during.wants_sample() {
            during.take(sample(active));
        }
        let (mut worked, mut after) = (during.summary(), After::default());
        for _ in 0..AFTERWARDS {
            if after.take(&mut worked, sample(end)) {
                break;
            }
        }
        judge_cpu(&worked).verdict
    }

    /// The verdict of repeated runs is the same, near 5 % as well.
    #[test]
    fn verdict_on_the_cpu_does_not_swing() {
        for (active, end, swing, expected) in [
            (0.5, 0.5, 0.5, Unknown),
            (5.0, 5.0, 2.0, Unknown),
            (5.5, 0.5, 3.0, Unknown),
            (6.0, 0.5, 2.0, Unknown),
            (20.0, 0.5, 4.0, Holds),
            (20.0, 4.2, 0.5, Unknown),
            (20.0, 20.0, 6.0, Deviates),
            (100.0, 5.0, 3.0, Holds),
            (100.0, 19.0, 4.0, Unknown),
            (100.0, 40.0, 10.0, Deviates),
            (100.0, 90.0, 20.0, Deviates),
        ] {
            for seed in 0..500 {
                let found = verdict(active, end, swing, seed);
                assert_eq!(found, expected, "{active} %, then {end} %, ±{swing}, seed {seed}");
            }
        }
    }

    /// The finding states the repeats.
    #[test]
    fn repeated_samples_are_told() {
        let mut during = During::new((Some(0.0), 0));
        while during.wants_sample() {
            during.take((Some(5.0), 0));
        }
        let found = judge_cpu(&during.summary());
        assert_eq!(found.evidence, "the call uses 5 % of a CPU, too little to tell");
        assert_eq!(found.repeats, 3);
    }
}
