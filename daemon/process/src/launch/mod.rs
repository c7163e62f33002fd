//! Preparation of a launch: program paths, arguments, environment, limits.

pub(crate) mod command;
pub(crate) mod environment;
pub(crate) mod explain;
pub(crate) mod inherit;
pub(crate) mod limits;
pub(crate) mod prepared;
pub(crate) mod stdio_pipes;
pub(crate) mod trial;

pub use command::{Launch, WorkingDir};
pub(crate) use explain::{explain, explain_resources, unavailable};
pub use inherit::Inherit;
pub(crate) use prepared::Prepared;
pub use prepared::unrunnable;
pub use stdio_pipes::{CommandPipes, OwnPipes, stdio_pipes};
