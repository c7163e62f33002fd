//! Errors of the database as failures of the table.

use std::time::Duration;

use crate::contract::Failure;
use crate::postgres::{PgError, TooLarge};

/// The meaning of an error for its batch.
pub(super) fn failure(error: &PgError) -> Failure {
    let told = error.to_string();
    match error {
        PgError::Server(refusal) => match refusal.code.as_str() {
            // The fence's division.
            "22012" => Failure::Fenced,
            // No right, no such table: people have to do something.
            "42501" | "42P01" | "3F000" => Failure::Unusable(told),
            code if is_of_the_batch(code) => Failure::Refused(told),
            _ => Failure::Failing(told),
        },
        PgError::Authentication(_) => Failure::Unusable(told),
        PgError::Closed(refusal) if refusal.code.starts_with("28") || refusal.code == "3D000" => {
            Failure::Unusable(told)
        }
        PgError::Closed(_)
        | PgError::Io(_)
        | PgError::TimedOut
        | PgError::InDoubt
        | PgError::Unexpected(_)
        | PgError::Tls(_)
        | PgError::NoneWritable(_) => Failure::Unknown(told),
    }
}

/// Whether an error is about the values of a batch: in the classes data, integrity, and limits of the program.
pub(super) fn is_of_the_batch(code: &str) -> bool {
    ["22", "23", "54"].iter().any(|class| code.starts_with(class))
}

/// A value that no message can carry.
pub(super) fn too_large(_: TooLarge) -> Failure {
    Failure::Refused("a value is larger than the database takes".to_owned())
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
