//! A client of PostgreSQL for threads that may block: every wait has a deadline, and no runtime is
//! needed. Messages are parsed by `postgres-protocol`.
//!
//! A [`Session`] is one connection. A [`Batch`] of prepared statements goes out as one pipeline and
//! is carried out as one transaction: whole, or not at all.

mod address;
mod authentication;
mod batch;
mod error;
mod rows;
mod session;
mod stream;
mod tls;

pub use address::{Address, AddressError, Host, TlsMode};
pub use batch::{Batch, Statement, TooLarge, Value};
pub use error::{PgError, ServerError};
pub use rows::{Row, Rows};
pub use session::{Notification, Session};
