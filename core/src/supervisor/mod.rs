//! Supervision of ACP agents: one agent process behind each client, whose frames pass unchanged, and
//! whose work ends when it is cancelled (SUP-01 to SUP-06).
//!
//! [`Supervision`](supervision::Supervision) is the state of one client and its agent, with one
//! transition function; [`Supervisor`](machine::Supervisor) carries out its effects.

mod abilities;
mod agent_frames;
pub(crate) mod attach;
mod choices;
mod client_frames;
pub(crate) mod effect;
mod ending;
mod held;
pub(crate) mod machine;
mod orders;
pub(crate) mod piece_kind;
mod piece_stops;
mod pieces;
mod reading;
mod reopening;
mod restart;
mod session;
pub(crate) mod status;
mod stop;
mod stopping;
mod successor;
pub(crate) mod supervision;
pub(crate) mod table;
mod terms;
#[cfg(test)]
mod tests;
mod texts;
mod watch;
mod watchdog;
pub(crate) mod work;
