//! Accounts of users whose processes commands are to become, looked up on a thread of their own.
//!
//! A directory service of another machine may have to be asked, and need not answer. The thread that waits
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
    /// Where the thread hears for whom to look; there is none until somebody is looked for.
    asked: Option<Sender<u32>>,
    /// Each user that is being looked up, once, whoever still waits for it.
    waiting: BTreeMap<u32, Vec<Launch>>,
}

impl Lookups {
    /// Answers go to the mailbox, as [`Message::Account`].
    pub(crate) const fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, asked: None, waiting: BTreeMap::new() }
    }

    /// Has a launch wait for the account of its user.
    ///
    /// # Errors
    /// When there can be no thread.
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
        asked.send(uid).map_err(|_| io::Error::other("the thread that looks them up has ended"))?;
        self.asked = Some(asked);
        Ok(())
    }

    /// The launches that waited for an account that is there now.
    pub(crate) fn answered(&mut self, uid: u32) -> Vec<Launch> {
        self.waiting.remove(&uid).unwrap_or_default()
    }

    /// Whether a job waits.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.waiting.values().flatten().any(|launch| launch.job == job)
    }

    /// Has a job wait no longer; false when it did not.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        let is_found = self.has(job);
        if is_found {
            self.waiting.values_mut().for_each(|waiting| waiting.retain(|l| l.job != job));
        }
        is_found
    }

    /// Has nobody wait any longer.
    pub(crate) fn forget_all(&mut self) -> Vec<JobId> {
        self.waiting.values_mut().flat_map(std::mem::take).map(|launch| launch.job).collect()
    }
}

/// Starts the thread, which ends when nobody can ask any more.
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
