//! The task table that several daemons of ceased share.
//!
//! [`contract`] is the contract of a table; [`PostgresTable`] keeps one in PostgreSQL, and [`Model`] one in
//! memory, for tests. [`postgres`] is a client of PostgreSQL without an async runtime.

pub mod contract;
mod model;
pub mod postgres;
mod table;

pub use model::{Model, ModelTable};
pub use table::{FORMAT, PostgresHints, PostgresTable};
