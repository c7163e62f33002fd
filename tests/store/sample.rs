//! Sample records: every kind of owner, status and outcome.

use std::time::Duration;

use ceased::{ErrorObject, TaskId};
use ceased_core::identity::Identity;
use ceased_core::tasks::durable::{RecordKey, RecordedOutcome, StoreWrite, TaskRecord};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use serde_json::value::RawValue;
use uuid::Uuid;

/// The id of the task with this number.
pub(crate) fn id(number: u64) -> TaskId {
    TaskId::new(Uuid::from_u64_pair(0x1234_5678_9abc_4def, 0x8000_0000_0000_0000 | number))
}

/// Key of the task with this number.
pub(crate) fn key(number: u64) -> RecordKey {
    working(number).key()
}

/// A task that has not ended.
pub(crate) fn working(number: u64) -> TaskRecord {
    TaskRecord {
        id: id(number),
        owner: match number % 3 {
            0 => Identity::User(u32::try_from(number % 70_000).unwrap()),
            1 => Identity::Token(format!("a:name of {number}").into()),
            _ => Identity::Anonymous,
        },
        position: number * 7,
        tool: format!("tool-{}", number % 5).into(),
        status: if number % 4 == 3 { Status::InputRequired } else { Status::Working },
        status_message: number.is_multiple_of(2).then(|| "it goes \"on\"\n\u{1f600}".into()),
        created: Wall::from_millis(1_763_700_000_000 + number),
        updated: Wall::from_millis(1_763_700_000_001 + number),
        ttl: Duration::from_nanos(1_500_000 + number),
        expires: Wall::from_millis(u64::MAX - number),
        outcome: RecordedOutcome::Open,
        asks: None,
        work: None,
    }
}

/// A completed task with a result of about `bytes` bytes.
pub(crate) fn completed(number: u64, bytes: usize) -> TaskRecord {
    let json = format!("{{\"n\": {number},\"text\":\"{}\"}}", "é".repeat(bytes / 2));
    TaskRecord {
        status: Status::Completed,
        outcome: RecordedOutcome::Here(Ok(RawValue::from_string(json).unwrap().into())),
        ..working(number)
    }
}

/// A task that has ended with an error.
pub(crate) fn failed(number: u64) -> TaskRecord {
    let error = ErrorObject::new(-31_001 - number.cast_signed() % 5, format!("error \"{number}\""));
    let error = if number.is_multiple_of(2) { error.with_data("{\"a\": [1,2]}") } else { error };
    TaskRecord {
        status: if number.is_multiple_of(3) { Status::Cancelled } else { Status::Failed },
        outcome: RecordedOutcome::Here(Err(error)),
        ..working(number)
    }
}

/// The creation of a task that has not ended, or the end of one.
pub(crate) const fn put(record: TaskRecord) -> StoreWrite {
    match record.status.is_terminal() {
        false => StoreWrite::New(record),
        true => StoreWrite::Put(record),
    }
}

pub(crate) fn delete(number: u64) -> StoreWrite {
    StoreWrite::Delete(key(number))
}
