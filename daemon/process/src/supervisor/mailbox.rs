//! Messages to the supervisor's thread.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use mio::Waker;

use crate::account::Account;
use crate::supervisor::report::Order;

/// Where the supervisor's thread is told something.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    pub(crate) messages: Sender<Message>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Tells it; returns at once.
    pub(crate) fn tell(&self, message: Message) -> Result<(), SupervisorGone> {
        self.messages.send(message).map_err(|_| SupervisorGone)?;
        self.waker.wake().map_err(|_| SupervisorGone)
    }
}

/// The supervisor's thread has ended, so that nobody hears the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisorGone;

impl fmt::Display for SupervisorGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the supervisor of processes has ended; no command can be run any more")
    }
}

impl Error for SupervisorGone {}

/// What the thread is told.
pub(crate) enum Message {
    Order(Order),
    /// What became of looking up a user, which commands have waited for.
    Account(u32, Result<Account, String>),
    /// A question whether the thread still turns: called in its next turn.
    Probe(Box<dyn FnOnce() + Send>),
    /// Kill everything and end, at this time at the latest.
    Stop(Instant),
}
