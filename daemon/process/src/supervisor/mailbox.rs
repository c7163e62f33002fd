//! Messages to the supervisor's thread.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use mio::Waker;

use crate::account::Account;
use crate::supervisor::report::Order;

/// Sender of messages to the supervisor's thread.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    pub(crate) messages: Sender<Message>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Sends a message without blocking.
    pub(crate) fn tell(&self, message: Message) -> Result<(), SupervisorGone> {
        self.messages.send(message).map_err(|_| SupervisorGone)?;
        self.waker.wake().map_err(|_| SupervisorGone)
    }
}

/// The supervisor's thread has ended; the order was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisorGone;

impl fmt::Display for SupervisorGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process supervisor has ended; commands can no longer be run")
    }
}

impl Error for SupervisorGone {}

/// A message to the thread.
pub(crate) enum Message {
    Order(Order),
    /// Result of a user lookup that launches wait for.
    Account(u32, Result<Account, String>),
    /// A question whether the thread still turns: called in its next turn.
    Probe(Box<dyn FnOnce() + Send>),
    /// Kill everything and end, by this time.
    Stop(Instant),
}
