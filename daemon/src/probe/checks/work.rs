//! The end of the work of a cancelled call.

use crate::probe::context::Context;
use crate::probe::finding::Finding;
use crate::probe::observed::Worked;
use crate::probe::options::ToolCall;
use crate::probe::session::{Session, Trouble, cancel};
use crate::probe::text::listed;
use crate::probe::work::observe;

/// The observation of a plain call.
fn cancelled_call(context: &Context, call: &ToolCall) -> Result<Worked, String> {
    let observed = Session::start(context).and_then(|mut session| {
        let start = |session: &mut Session<'_>| {
            let id = session.next_id();
            let line = session.call(&id, call);
            session.say(&line)?;
            Ok(id)
        };
        observe(&mut session, start, |session, id| session.say(&cancel(id)))
    });
    observed.map_err(|Trouble(why)| why)
}

fn observed(context: &Context) -> Result<&Worked, Trouble> {
    let worked = context.work.get_or_init(|| cancelled_call(context, context.long()));
    worked.as_ref().map_err(|why| Trouble(why.clone()))
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
    if !worked.used_cpu() {
        return Finding::unknown(format!(
            "the call uses {active:.0} % of a CPU, too little to tell"
        ));
    }
    let seen = format!("idle {idle:.0} %, during the call {active:.0} %, afterwards {end:.0} %");
    Finding::of(!worked.uses_cpu(), seen)
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
pub(crate) fn processes(context: &Context) -> Result<Finding, Trouble> {
    observed(context).map(judge_processes)
}

/// CAN-06.
pub(crate) fn cpu(context: &Context) -> Result<Finding, Trouble> {
    observed(context).map(judge_cpu)
}

/// CAN-06.
pub(crate) fn writes(context: &Context) -> Result<Finding, Trouble> {
    observed(context).map(judge_writes)
}

/// All three of one observation: the first deviation, else the first that holds.
pub(crate) fn judge_all(worked: &Worked) -> Finding {
    let all = [judge_processes(worked), judge_cpu(worked), judge_writes(worked)];
    let with = |verdict| all.iter().find(move |finding| finding.verdict == verdict);
    use crate::probe::finding::Verdict::{Deviates, Holds};
    let found = with(Deviates).or_else(|| with(Holds));
    found.cloned().unwrap_or_else(|| {
        Finding::unknown("the call starts no process, uses no CPU and writes nothing")
    })
}

/// UPS-05: work that ignores the cancel.
pub(crate) fn stubborn(context: &Context) -> Result<Finding, Trouble> {
    let Some(call) = &context.options.stubborn else {
        return Ok(Finding::unknown("name such a tool with --stubborn-tool"));
    };
    let worked = context.stubborn.get_or_init(|| cancelled_call(context, call));
    worked.as_ref().map(judge_all).map_err(|why| Trouble(why.clone()))
}
