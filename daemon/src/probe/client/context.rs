//! The context of all checks of a client.

use std::sync::OnceLock;

use super::observed::Observed;
use super::options::ClientOptions;
use crate::probe::arena::Arena;
use crate::probe::session::Trouble;
use crate::probe::suite::Subject;

/// Observations that several checks judge.
pub(super) type Shared = OnceLock<Result<Observed, String>>;

/// Shared by all checks.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) arena: Arena,
    pub(super) options: ClientOptions,
    pub(super) whole: Shared,
    pub(super) hanging: Shared,
    pub(super) killed: Shared,
}

impl Context {
    pub(super) fn new(arena: Arena, options: ClientOptions) -> Self {
        let (whole, hanging, killed) = (Shared::new(), Shared::new(), Shared::new());
        Self { arena, options, whole, hanging, killed }
    }

    /// The observation of a cell, from its run if there is none yet.
    pub(super) fn once<'a>(
        &'a self,
        cell: &'a Shared,
        run: fn(&Self) -> Result<Observed, Trouble>,
    ) -> Result<&'a Observed, Trouble> {
        let observed = cell.get_or_init(|| run(self).map_err(|Trouble(why)| why));
        observed.as_ref().map_err(|why| Trouble(why.clone()))
    }
}

impl Subject for Context {
    type Needs = ();
}
