//! Frames of the client that wait: for the agent, for a session to be reopened, or for the end of a
//! cancelled turn.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ids::{JobId, RequestId};
use crate::policy::account::{Account, Charge};
use crate::supervisor::work::WorkId;
use crate::time::Instant;

/// One frame that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Vec<u8>,
    /// Number of a request among the jobs of the engine, which the later work keeps.
    pub(super) job: Option<JobId>,
    pub(super) since: Instant,
    /// Id of a request.
    pub(super) id: Option<WorkId>,
    pub(super) method: Box<str>,
    pub(super) session: Option<Box<str>>,
}

impl Held {
    pub(super) fn is_prompt(&self) -> bool {
        &*self.method == "session/prompt"
    }
}

/// The frames that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct HeldFrames {
    pub(super) frames: VecDeque<Held>,
    /// Their bytes, charged to the identity of the client.
    charge: Charge,
}

/// Frames that wait at most.
const FRAMES_MAX: usize = 1024;

impl HeldFrames {
    /// None, of a client with this account.
    pub(super) fn charged_to(account: &Account) -> Self {
        Self { frames: VecDeque::new(), charge: account.charge(0) }
    }

    /// Bytes that are held for the identity of the client.
    pub(super) fn held_for_identity(&self) -> usize {
        self.charge.account().own()
    }

    /// Bytes of the frames, if an identity is charged with them.
    pub(super) const fn charged(&self) -> usize {
        if self.charge.account().is_unowned() { 0 } else { self.charge.bytes() }
    }

    /// Bytes of the frames.
    const fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame; gives it back if too much waits.
    pub(super) fn push(&mut self, held: Held, bytes_max: usize) -> Result<(), Held> {
        let bytes = self.bytes().saturating_add(held.frame.len());
        if self.frames.len() >= FRAMES_MAX || (bytes > bytes_max && !self.frames.is_empty()) {
            return Err(held);
        }
        self.charge.set(bytes);
        self.frames.push_back(held);
        Ok(())
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Held> {
        let held = self.frames.remove(at)?;
        self.charge.shrink(held.frame.len());
        Some(held)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Held> {
        self.charge.set(0);
        core::mem::take(&mut self.frames)
    }

    /// The requests that wait, in their order.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&Held, &RequestId)> {
        self.frames.iter().filter_map(|held| Some((held, &held.id.as_ref()?.id)))
    }

    /// Numbers the requests that have no number yet.
    pub(super) fn number(&mut self, mut draw: impl FnMut() -> JobId) {
        let fresh = |held: &&mut Held| held.id.is_some() && held.job.is_none();
        for held in self.frames.iter_mut().filter(fresh) {
            held.job = Some(draw());
        }
    }

    /// Takes out a request by its number.
    pub(super) fn take_job(&mut self, job: JobId) -> Option<Held> {
        let at = self.frames.iter().position(|held| held.job == Some(job))?;
        self.remove(at)
    }

    /// Takes out a request by its id.
    pub(super) fn take_request(&mut self, id: &RequestId) -> Option<Held> {
        let is_it = |held: &Held| held.id.as_ref().is_some_and(|it| it.id == *id);
        let at = self.frames.iter().position(is_it)?;
        self.remove(at)
    }

    /// Takes out the prompts of a session.
    pub(super) fn take_prompts(&mut self, session: &str) -> Vec<Held> {
        let mut taken = Vec::new();
        let mut at = 0;
        while let Some(held) = self.frames.get(at) {
            if held.is_prompt() && held.session.as_deref() == Some(session) {
                taken.extend(self.remove(at));
            } else {
                at += 1;
            }
        }
        taken
    }
}
