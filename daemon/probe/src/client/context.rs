//! The context of all checks of a client.

use super::observed::Observed;
use super::options::ClientOptions;
use crate::arena::Arena;
use crate::observed::Observation;
use crate::suite::Subject;

/// Shared by all checks.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) arena: Arena,
    pub(super) options: ClientOptions,
    pub(super) whole: Observation<Observed>,
    pub(super) hanging: Observation<Observed>,
    pub(super) killed: Observation<Observed>,
}

impl Context {
    pub(super) fn new(arena: Arena, options: ClientOptions) -> Self {
        let (whole, hanging, killed) =
            (Observation::default(), Observation::default(), Observation::default());
        Self { arena, options, whole, hanging, killed }
    }
}

impl Subject for Context {
    type Needs = ();

    fn arena(&self) -> &Arena {
        &self.arena
    }
}
