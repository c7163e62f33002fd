//! The context of all checks of a client.

use std::sync::OnceLock;

use super::options::ClientOptions;
use super::run::{self, Observed};
use crate::probe::arena::Arena;
use crate::probe::session::Trouble;

type Shared = OnceLock<Result<Observed, String>>;

/// Shared by all checks.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) arena: Arena,
    pub(super) options: ClientOptions,
    whole: Shared,
    hanging: Shared,
    killed: Shared,
}

impl Context {
    pub(super) fn new(arena: Arena, options: ClientOptions) -> Self {
        let (whole, hanging, killed) = (Shared::new(), Shared::new(), Shared::new());
        Self { arena, options, whole, hanging, killed }
    }

    fn once<'a>(
        &'a self,
        cell: &'a Shared,
        run: fn(&Arena, &ClientOptions) -> Result<Observed, Trouble>,
    ) -> Result<&'a Observed, Trouble> {
        let observed =
            cell.get_or_init(|| run(&self.arena, &self.options).map_err(|Trouble(why)| why));
        observed.as_ref().map_err(|why| Trouble(why.clone()))
    }

    /// The run to the end of the script.
    pub(super) fn whole(&self) -> Result<&Observed, Trouble> {
        self.once(&self.whole, run::whole)
    }

    /// The run without a handshake.
    pub(super) fn hanging(&self) -> Result<&Observed, Trouble> {
        self.once(&self.hanging, run::hanging)
    }

    /// The run that ends with the death of the client.
    pub(super) fn killed(&self) -> Result<&Observed, Trouble> {
        self.once(&self.killed, run::killed)
    }
}
