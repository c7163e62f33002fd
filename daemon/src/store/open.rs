//! Store locations, and opening them at startup.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ceased_core::limits::Limits;
use ceased_core::tasks::durable::TaskRecord;
use ceased_core::time::Wall;

use super::backing::Backing;
use super::contract::{Store, StoreError};
use super::directory::StateDir;
use crate::announce::say;
#[cfg(feature = "fleet")]
use crate::fleet::{FleetOptions, FleetSettings, FleetStore, Reader};
use crate::start_error::StartError;

/// Where a daemon keeps its tasks.
pub(crate) enum StoreLocation {
    /// In memory: tasks end with the daemon.
    Memory,
    /// In a state directory.
    Disk(OnDisk),
    /// In a store of the embedding program.
    In(Box<dyn Store>),
    /// In a table that several daemons share; the directory has the key of this one.
    #[cfg(feature = "fleet")]
    Fleet(Box<FleetSettings>, Option<OnDisk>),
}

/// Settings of a store in a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// The state directory.
    pub(crate) dir: PathBuf,
    /// Bytes reserved for finishing started tasks when the disk is full.
    pub(crate) reserve: u64,
    /// Handling of a damaged store.
    pub(crate) damaged: Damaged,
}

/// Handling of a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Damaged {
    /// The store is left unchanged, and the daemon does not start.
    #[default]
    Refuse,
    /// The store is renamed, and the daemon starts with an empty one and logs that.
    SetAside,
}

/// An open store and the records read from it.
pub(crate) struct OpenedStore {
    pub(crate) store: Backing,
    /// Asks the table that several daemons share.
    #[cfg(feature = "fleet")]
    pub(crate) reader: Option<Reader>,
    pub(crate) records: Vec<TaskRecord>,
    pub(crate) dir: Option<Arc<StateDir>>,
    /// Directory of the files; `None` for a store of the embedding program.
    pub(crate) path: Option<PathBuf>,
    /// New name of a damaged store that was set aside.
    pub(crate) set_aside: Option<PathBuf>,
}

impl OpenedStore {
    /// A store of this daemon.
    fn own(store: Box<dyn Store>, records: Vec<TaskRecord>) -> Self {
        Self {
            store: Backing::Own(store),
            #[cfg(feature = "fleet")]
            reader: None,
            records,
            dir: None,
            path: None,
            set_aside: None,
        }
    }
}

/// Joins a fleet. The state directory is taken first: that ends the processes of the daemon before this
/// one, whose tasks are lost by the join.
#[cfg(feature = "fleet")]
fn join(
    settings: &FleetSettings,
    disk: Option<OnDisk>,
    limits: &Limits,
) -> Result<OpenedStore, StartError> {
    let dir = disk.map(|disk| StateDir::take(&disk.dir)).transpose()?.map(Arc::new);
    let options = FleetOptions::new(settings, limits, dir.as_deref().map(StateDir::path));
    let (fleet, reader) = options.and_then(FleetStore::open).map_err(StartError::Fleet)?;
    Ok(OpenedStore {
        store: Backing::Shared(Box::new(fleet)),
        reader: Some(reader),
        records: Vec::new(),
        dir,
        path: None,
        set_aside: None,
    })
}

impl StoreLocation {
    /// Opens the store and reads it; outcomes larger than `resident` bytes stay on disk.
    pub(crate) fn open(self, limits: &Limits) -> Result<Option<OpenedStore>, StartError> {
        let resident = limits.resident_result_bytes;
        match self {
            Self::Memory => Ok(None),
            Self::In(mut store) => {
                let records = records(&mut *store, resident)?;
                Ok(Some(OpenedStore::own(store, records)))
            }
            Self::Disk(disk) => disk.open(resident).map(Some),
            #[cfg(feature = "fleet")]
            Self::Fleet(fleet, disk) => join(&fleet, disk, limits).map(Some),
        }
    }
}

impl OnDisk {
    fn open(&self, resident: usize) -> Result<OpenedStore, StartError> {
        let dir = Arc::new(StateDir::take(&self.dir)?);
        let path = dir.store()?;
        let mut set_aside_as = None;
        let (store, records) = match self.read(&dir, &path, resident) {
            Err(StoreError::Unusable(super::contract::Unusable::Damaged(what)))
                if self.damaged == Damaged::SetAside =>
            {
                let aside = set_aside_as.insert(set_aside(&path)?).display();
                say(format_args!("{what}"));
                say(format_args!(
                    "this daemon starts without its tasks; the damaged store was set aside as {aside}"
                ));
                tracing::error!(%what, %aside, "set a damaged store aside and created an empty one");
                let path = dir.store()?;
                self.read(&dir, &path, resident)?
            }
            other => other.map_err(|error| refused(error, &path))?,
        };
        let dir = Some(dir);
        let own = OpenedStore::own(store, records);
        Ok(OpenedStore { dir, path: Some(path), set_aside: set_aside_as, ..own })
    }

    #[cfg(feature = "sqlite")]
    fn read(
        &self,
        dir: &Arc<StateDir>,
        path: &Path,
        resident: usize,
    ) -> Result<Opened, StoreError> {
        let mut store = super::sqlite::Sqlite::open_in(Arc::clone(dir), path, self.reserve)?;
        let records = records(&mut store, resident)?;
        Ok((Box::new(store), records))
    }

    #[cfg(not(feature = "sqlite"))]
    fn read(&self, _: &Arc<StateDir>, _: &Path, _: usize) -> Result<Opened, StoreError> {
        let what = "this build cannot keep tasks on disk: it was compiled without the feature `sqlite`; \
                    set store = \"memory\" in [daemon]";
        Err(StoreError::Refused(what.into()))
    }
}

/// A store and its records.
type Opened = (Box<dyn Store>, Vec<TaskRecord>);

fn records(store: &mut dyn Store, resident: usize) -> Result<Vec<TaskRecord>, StoreError> {
    let mut records = Vec::new();
    store.restore(resident, &mut |record| records.push(record))?;
    Ok(records)
}

/// Adds the remedy to the error of a damaged store.
fn refused(error: StoreError, path: &Path) -> StartError {
    let StoreError::Unusable(super::contract::Unusable::Damaged(what)) = &error else {
        return error.into();
    };
    let path = path.display();
    StoreError::damaged(format!(
        "{what}\nthe store was left unchanged; to start without its tasks, set it aside: \
         mv {path} {path}.damaged (or set damaged_store = \"set_aside\" in [daemon])"
    ))
    .into()
}

/// Renames the directory of a store, which keeps its content; returns the new path.
fn set_aside(path: &Path) -> Result<PathBuf, StartError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".damaged-{}", now.to_iso8601().replace(':', "")));
    fs::rename(path, &aside)?;
    Ok(aside.into())
}
