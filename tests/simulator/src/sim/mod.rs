//! The simulator: a whole world around the real engine, decided by one number.
//!
//! A seed decides first the kinds of events (the [swarm]), then the events
//! ([generate]). A [judge] acts as an honest host and holds every action of the engine against
//! those of an [oracle], written from the ledger. In the end all faults stop
//! and everything must come to rest; then the same steps run a second time and must give the same
//! bytes (DET-01). A failing history is made as short as it can be ([`mod@minimise`]).

pub mod dialects;
pub mod fault;
pub mod generate;
pub mod judge;
pub mod mark;
pub mod minimise;
pub mod oracle;
pub mod step;
pub mod swarm;

mod answers;
mod compare;
mod heard;
mod heard_modern;
mod id_source;
mod inputs;
mod link;
mod loosest;
mod party;
mod peer;
mod repeats;
mod server;
mod spelling;

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use self::fault::Faults;
use self::generate::Generator;
use self::judge::Judge;
use self::mark::Mark;
use self::minimise::minimise;
use self::step::Step;
use self::swarm::Swarm;

/// How often a failing history may be tried again to make it shorter.
const TRIES: usize = 3000;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its parameters.
    pub seed: u64,
    /// How many things happen.
    pub steps: usize,
    /// Its faults.
    pub faults: Faults,
    /// Hold every so many-th message against the published schemas; never when 0.
    pub validate: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, faults, .. } = self;
        write!(
            f,
            "cargo run -p ceased-simulator --bin sim -- --seed {seed} --steps {steps} --faults {faults}"
        )
    }
}

/// Summary of a run without deviation.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Events handed to the engine, in both passes.
    pub events: u64,
    /// A sum over everything the engine did.
    pub hash: u64,
    /// Marks that were reached.
    pub marks: BTreeSet<Mark>,
}

/// A run that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which.
    pub run: Run,
    /// The failure.
    pub why: String,
    /// Everything up to there.
    pub steps: Vec<Step>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\nagain: {}", self.why, self.run)
    }
}

impl Failure {
    /// The shortest part of the history that fails in the same way, and how it does.
    #[must_use]
    pub fn minimised(&self) -> Self {
        let swarm = Swarm::new(self.run.seed, self.run.faults);
        let kind = gist(&self.why);
        let mut fails =
            |steps: &[Step]| replay(&swarm, steps).err().is_some_and(|why| gist(&why) == kind);
        if !fails(&self.steps) {
            return self.clone();
        }
        let steps = minimise(self.steps.clone(), TRIES, &mut fails);
        let why = replay(&swarm, &steps).err().unwrap_or_else(|| self.why.clone());
        Self { run: self.run, why, steps }
    }
}

/// The first words of the deviation: a shorter history may have other numbers in the rest.
fn gist(why: &str) -> String {
    let end = why.find(['{', '[', '"']).unwrap_or(why.len());
    why[..end].chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}

/// Runs the whole thing.
///
/// # Errors
/// When the engine deviates from the oracle; with the history that led there.
pub fn run(run: Run) -> Result<(Outcome, Vec<Step>), Box<Failure>> {
    let swarm = Swarm::new(run.seed, run.faults);
    let mut judge = Judge::new(&swarm, true, run.validate);
    let mut generator = Generator::new(run.seed, &swarm);
    let mut steps = Vec::new();
    let first = caught(|| {
        for _ in 0..run.steps {
            let step = generator.next(&judge);
            steps.push(step);
            judge.apply(steps.last().expect("it was put there"));
        }
        if let Some(step) = generator.last() {
            steps.push(step);
            judge.apply(steps.last().expect("it was put there"));
            for _ in 0..30 {
                let step = generator.next(&judge);
                steps.push(step);
                judge.apply(steps.last().expect("it was put there"));
            }
        }
        judge.finish();
    });
    let fail = |why: String, steps: Vec<Step>| Box::new(Failure { run, why, steps });
    if let Err(why) = first {
        return Err(fail(why, steps));
    }
    // E1, DET-01
    let mut again = Judge::new(&swarm, false, 0);
    again.said = std::mem::take(&mut judge.said);
    again.starts = std::mem::take(&mut judge.starts);
    let second = caught(|| {
        steps.iter().for_each(|step| again.apply(step));
        again.finish();
    });
    if let Err(why) = second {
        return Err(fail(why, steps));
    }
    if again.hash != judge.hash {
        let why = format!("not deterministic: {:016x} and {:016x}", judge.hash, again.hash);
        return Err(fail(why, steps));
    }
    let marks = judge.oracle.map(|oracle| oracle.marks).unwrap_or_default();
    let outcome = Outcome { events: judge.events + again.events, hash: judge.hash, marks };
    Ok((outcome, steps))
}

/// Runs steps that were written down.
///
/// # Errors
/// The failure.
pub fn replay(swarm: &Swarm, steps: &[Step]) -> Result<u64, String> {
    let mut judge = Judge::new(swarm, true, 0);
    caught(|| {
        steps.iter().for_each(|step| judge.apply(step));
        judge.finish();
    })?;
    Ok(judge.hash)
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f`; a panic is an answer here and not something to print.
fn caught(f: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let done = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    done.map_err(|panic| said(panic.as_ref()))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
