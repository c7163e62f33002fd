//! Lookups of user accounts for commands that run as another user, on a thread of their own.
//!
//! A lookup may query a remote directory service that does not respond, and must not block the
//! supervisor's thread.
//! for it must not be the one that ends processes.

use std::collections::BTreeMap;
use std::io;
use std::thread;

use crate::ids::JobId;
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::account::Account;
use crate::launch::Launch;
use crate::supervisor::mailbox::{Mailbox, Message};
use crate::sys;

/// Launches that wait for the accounts of their users.
pub(crate) struct Lookups {
    mailbox: Mailbox,
    /// Sender of requests to the thread, which is created at the first lookup.
    asked: Option<Sender<u32>>,
    /// Launches by user being looked up.
    waiting: BTreeMap<u32, Vec<Launch>>,
}

impl Lookups {
    /// Results are sent to the mailbox as [`Message::Account`].
    pub(crate) const fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, asked: None, waiting: BTreeMap::new() }
    }

    /// Queues a launch until the account of its user is known.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub(crate) fn wait(&mut self, launch: Launch, uid: u32) -> io::Result<()> {
        if !self.waiting.contains_key(&uid) {
            self.ask(uid)?;
        }
        self.waiting.entry(uid).or_default().push(launch);
        Ok(())
    }

    fn ask(&mut self, uid: u32) -> io::Result<()> {
        let asked = match self.asked.take() {
            Some(asked) => asked,
            None => start(self.mailbox.clone())?,
        };
        asked.send(uid).map_err(|_| io::Error::other("the lookup thread has ended"))?;
        self.asked = Some(asked);
        Ok(())
    }

    /// Takes the launches that waited for this account.
    pub(crate) fn answered(&mut self, uid: u32) -> Vec<Launch> {
        self.waiting.remove(&uid).unwrap_or_default()
    }

    /// Whether a job waits.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.waiting.values().flatten().any(|launch| launch.job == job)
    }

    /// Removes a waiting job; false if it does not wait.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        let is_found = self.has(job);
        if is_found {
            self.waiting.values_mut().for_each(|waiting| waiting.retain(|l| l.job != job));
        }
        is_found
    }

    /// Removes all waiting jobs.
    pub(crate) fn forget_all(&mut self) -> Vec<JobId> {
        self.waiting.values_mut().flat_map(std::mem::take).map(|launch| launch.job).collect()
    }
}

/// Starts the thread, which ends when the sender is dropped.
fn start(mailbox: Mailbox) -> io::Result<Sender<u32>> {
    let (ask, asked): (_, Receiver<u32>) = unbounded();
    thread::Builder::new().name("ceased-accounts".into()).spawn(move || {
        sys::block_signals();
        for uid in asked {
            if mailbox.tell(Message::Account(uid, Account::of(uid))).is_err() {
                return;
            }
        }
    })?;
    Ok(ask)
}
