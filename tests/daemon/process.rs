//! Jobs and handlers in the real daemon: races, threads, output and ends.

mod cancel_races;
mod embedded_offers;
mod handlers;
mod loop_handoff;
mod on_end;
mod output;
mod unkillable;
