//! The checks of an agent.

pub(super) mod endings;
pub(super) mod messages;
pub(super) mod pieces;
pub(super) mod turns;
pub(super) mod work;
