//! The place of the store, and its thread.

use crate::event_loop::mailbox;
use crate::event_loop::mailbox::LoopSender;
use crate::store::open::OpenedStore;
use crate::store::thread::StoreThread;

use crate::store::Store;
use std::io;
use std::path::PathBuf;

/// Where a store keeps what it has, and what became of the one before it.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) path: Option<PathBuf>,
    pub(super) set_aside: Option<PathBuf>,
}

impl Place {
    pub(super) fn of(kept: Option<&OpenedStore>) -> Self {
        kept.map_or_else(Self::default, |kept| {
            let (path, set_aside) = (kept.path.clone(), kept.set_aside.clone());
            Self { path, set_aside }
        })
    }
}

/// Starts a store's thread that reports to the loop.
pub(super) fn start(store: Box<dyn Store>, reports: &LoopSender) -> io::Result<StoreThread> {
    let reports = reports.clone();
    let report = Box::new(move |report| reports.send(mailbox::Report::Store(report)));
    StoreThread::start(store, report)
}
