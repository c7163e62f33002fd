//! Steps: what happens in a simulated world, as data. Any part of a history is a history: what
//! does not apply is passed over.

use serde::{Deserialize, Serialize};

/// One thing that happens, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Nanoseconds on the monotonic clock.
    pub at: u64,
    /// Milliseconds on the wall clock.
    pub wall: u64,
    /// What.
    pub op: Op,
}

/// What may happen. Connections have the numbers the generator gave them; jobs go by the number
/// in the arguments of their call, so that leaving a step out does not rename what is left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A peer connects.
    Open {
        /// Its number.
        conn: u64,
        /// Whose it is: a number below 3 for a user, anything else for nobody.
        user: u32,
    },
    /// Bytes of a peer arrive; one `char` below U+0100 a byte.
    Bytes {
        /// Whose.
        conn: u64,
        /// What.
        text: String,
    },
    /// A peer closes its side.
    Finish {
        /// Which.
        conn: u64,
        /// What becomes of what it asked for.
        then: Then,
    },
    /// A peer is gone.
    Vanish {
        /// Which.
        conn: u64,
    },
    /// From now on a peer takes so many bytes at a time.
    Window {
        /// Which.
        conn: u64,
        /// How many.
        bytes: usize,
    },
    /// A job got further.
    Progress {
        /// Which.
        job: u64,
        /// How far.
        to: i32,
        /// Whether it says what it is doing, and of how much.
        talks: bool,
    },
    /// A job logs something.
    Log {
        /// Which.
        job: u64,
        /// The number of the level.
        level: usize,
    },
    /// The first process of a job is gone and others are not.
    Linger {
        /// Which.
        job: u64,
    },
    /// A job has ended.
    Done {
        /// Which.
        job: u64,
        /// How.
        how: How,
    },
    /// The settings are read again; the number of those that hold now.
    Reload {
        /// Which.
        settings: usize,
    },
    /// The daemon shall be gone in so many nanoseconds.
    Drain {
        /// How many.
        within: u64,
    },
    /// What has arrived was handed in; what waits is sent.
    Turn,
    /// A deadline may have passed.
    Tick,
}

/// See [`AfterInput`](ceased_core::event::AfterInput).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of AfterInput")]
pub enum Then {
    Answer,
    Probe,
    Until(u64),
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With a result.
    Good,
    /// With a result that says it failed.
    Bad,
    /// With a JSON-RPC error.
    Error,
    /// With a result that is no object.
    Odd,
    /// With nothing.
    Stopped,
}
