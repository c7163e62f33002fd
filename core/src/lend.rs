//! Lends the leaves of the engine, or of a machine above, to a machine.

/// A machine with the leaves that it works on, each borrowed from the value of the same name; `drains`
/// says whether the daemon shuts down. The list of a machine begins with that of the one below it.
macro_rules! lend {
    (Gateway, $from:ident, $drains:expr) => {
        lend!(@ Gateway, $from, $drains, upstreams outbox outgoing timers jobs tasks)
    };
    (OutgoingMachine, $from:ident, $drains:expr) => {
        lend!(@ OutgoingMachine, $from, $drains, upstreams outbox outgoing timers jobs tasks suspended)
    };
    (JobMachine, $from:ident, $drains:expr) => {
        lend!(@ JobMachine, $from, $drains,
            upstreams outbox outgoing timers jobs tasks suspended keyed)
    };
    (TaskMachine, $from:ident, $drains:expr) => {
        lend!(@ TaskMachine, $from, $drains,
            upstreams outbox outgoing timers jobs tasks suspended keyed lookups retires)
    };
    (TaskNews, $from:ident) => {
        TaskNews {
            tasks: &mut $from.tasks,
            outbox: &mut $from.outbox,
            jobs: &mut $from.jobs,
            timers: &mut $from.timers,
            settings: &$from.settings,
            now: $from.now,
        }
    };
    (@ $machine:ident, $from:ident, $drains:expr, $($leaf:ident)*) => {
        $machine {
            $($leaf: &mut $from.$leaf,)*
            settings: &$from.settings,
            now: $from.now,
            seed: $from.seed,
            drains: $drains,
        }
    };
}

pub(crate) use lend;
