//! Steps: events of a simulated world, as data. Any part of a history is a history: a step that
//! does not apply is passed over.

use ceased_core::event::Outcome;
use ceased_core::rpc::error::ErrorObject;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::world::{raw_json, result_of};

/// One thing that happens, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Nanoseconds on the monotonic clock.
    pub at: u64,
    /// Milliseconds on the wall clock.
    pub wall: u64,
    /// The event.
    pub op: Op,
}

/// An event. Connections have the numbers the generator gave them; jobs go by the number
/// in the arguments of their call, so that leaving a step out does not rename others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A peer connects.
    Open {
        /// Its number.
        conn: u64,
        /// Its owner: a number below 3 for a user, any other for an anonymous peer.
        user: u32,
    },
    /// A peer connects that speaks ACP.
    OpenAcp {
        /// Its number.
        conn: u64,
        /// Whose it is, as above.
        user: u32,
        /// In the published form, or as first proposed.
        published: bool,
        /// Whether we are the agent.
        agent: bool,
    },
    /// The host cancels a job of its own accord.
    CancelJob {
        /// Which.
        job: u64,
        /// Why.
        cause: Why,
    },
    /// A job tells its ACP peer something, or the host does.
    Notify {
        /// The job, or the connection when it is the host.
        from: Result<u64, u64>,
        /// The message.
        number: u64,
    },
    /// We connect to a server.
    Connect {
        /// Its number.
        conn: u64,
        /// Whose it is, as above.
        user: u32,
        /// The number of our initialize.
        call: u64,
        /// Whether we offer sampling, elicitation, roots.
        offers: (bool, bool, bool),
        /// How long it may take to answer, in nanoseconds.
        answer_timeout: Option<u64>,
    },
    /// Bytes of a peer arrive; one `char` below U+0100 a byte. Others stand for the names that the
    /// engine gives to things.
    Bytes {
        /// Whose.
        conn: u64,
        /// The bytes.
        text: String,
    },
    /// A peer closes its side.
    Finish {
        /// Which.
        conn: u64,
        /// The treatment of its requests.
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
        /// Whether it has a message, and a total.
        talks: bool,
    },
    /// A job logs something.
    Log {
        /// Which.
        job: u64,
        /// The number of the level.
        level: usize,
    },
    /// A job asks a peer something.
    Ask {
        /// Which job.
        job: u64,
        /// The number of the question; no other has it.
        call: u64,
        /// The question.
        wish: Wish,
        /// Connection to ask, if not the requestor of the job.
        to: Option<u64>,
    },
    /// The host asks a peer something.
    Call {
        /// Which peer.
        conn: u64,
        /// The number of the question; no other has it.
        call: u64,
        /// The question.
        wish: Wish,
    },
    /// The asker withdraws its question.
    Unask {
        /// The job that asked, if it was not the host.
        job: Option<u64>,
        /// The question.
        call: u64,
    },
    /// The first process of a job is gone and others are not.
    Linger {
        /// Which.
        job: u64,
    },
    /// A job that is being stopped outlasts that.
    Outlast {
        /// Which.
        job: u64,
        /// The outcome so far.
        how: How,
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
    /// All input was handed in; the output is sent.
    Turn,
    /// A deadline may have passed.
    Tick,
}

/// A request to a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The method.
    pub method: String,
    /// The tool it is about.
    pub tool: Option<String>,
    /// Whether as a task, and with which ttl in milliseconds, 0 for none.
    pub task: Option<u64>,
    /// The timeout and its cap in nanoseconds, and whether progress starts it anew.
    pub answer_timeout: Option<(u64, u64, bool)>,
}

/// See [`AfterInput`](ceased_core::event::AfterInput).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of AfterInput")]
pub enum Then {
    Answer,
    Probe,
    Within(u64),
}

/// See [`Cause`](ceased_core::acp::protocol::HostStopReason).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of Cause")]
pub enum Why {
    Feature,
    Limit,
    Host,
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

impl How {
    /// The outcome of a job that ends so; `begins` where it was an `initialize` of ACP.
    #[must_use]
    pub fn outcome(self, job: u64, begins: bool) -> Outcome {
        let said = |bad: bool| {
            let text = format!("r{job}");
            let mut said = json!({"content": [{"type": "text", "text": text}], "isError": bad});
            if begins {
                let cancels = !job.is_multiple_of(4);
                said["agentCapabilities"] = json!({"cancellation": {"request": cancels}});
            }
            result_of(&said)
        };
        match self {
            Self::Good => said(false),
            Self::Bad => said(true),
            Self::Error => Outcome::Error(ErrorObject::new(-32000, "boom")),
            Self::Odd => Outcome::Result(raw_json(&format!("[{job}]")).into()),
            Self::Stopped => Outcome::Stopped,
        }
    }
}
