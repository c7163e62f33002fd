//! Manifests of upstream servers in the state directory: the identity and lists of each server from
//! its last run, so that clients are answered while it starts again (UPS-09).
//!
//! A manifest is a file below `manifests`. A hash names it, of the command, directory, environment
//! and user of the server, and a second one of the clients that the server has told it to (TSK-39).
//! It is a cache: a file that is absent, damaged or too large is not known,
//! and writing never delays the loop.
//!
//! Approvals, the tools of a server as they were approved, are files below `approvals` (UPS-19). They are
//! no cache: none is removed, and one that cannot be read is told to the engine.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::Hasher as _;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ceased_core::upstream::approval::Approval;
use ceased_core::upstream::manifest::Manifest;
use ceased_process::Launch;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::small_file;

/// Number of the format of a file. Files of another format are not known.
const FORMAT: u32 = 2;
/// Bytes of one file at most: a list of 4,096 tools has about 4 MiB.
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Files at most; the ones written longest ago are removed first.
const FILES_MAX: usize = 256;
/// Approvals at most. Further ones are not kept, and after a restart nothing of their servers is
/// approved by itself.
const APPROVALS_MAX: usize = 4096;
/// Manifests that wait to be written at most; further ones are dropped, and kept after the next
/// start of their server.
const WAITING_MAX: usize = 64;
/// Ending of a file.
const ENDING: &str = "json";

/// The manifests and approvals of a state directory.
#[derive(Debug)]
pub(crate) struct Manifests {
    dirs: Dirs,
    /// Approvals that are not written yet, by the names of their files.
    pending: Arc<Mutex<Pending>>,
    writer: Option<Writer>,
}

type Pending = BTreeMap<String, Arc<KeptApproval<Approval>>>;

#[derive(Debug, Clone)]
struct Dirs {
    manifests: PathBuf,
    approvals: PathBuf,
}

/// A file to be written, by its name.
#[derive(Debug)]
enum Order {
    Manifest(String, Box<Manifest>),
    /// The approvals that wait.
    Approvals,
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
}

#[derive(Serialize, Deserialize)]
struct Kept<M> {
    format: u32,
    manifest: M,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptApproval<A> {
    format: u32,
    /// For a reader of the file.
    server: String,
    approval: A,
}

/// Key of the approvals of a server: its name, its program or URL, and its user. Variables are no part
/// of it, since a new secret makes no other program.
pub(crate) fn approval_key(server: &str, program: &[&[u8]], user: &str) -> String {
    let mut hash = SipHasher24::new();
    for part in [&[server.as_bytes()], program, &[user.as_bytes()]].into_iter().flatten() {
        hash.write_u64(part.len() as u64);
        hash.write(part);
    }
    let hash = hash.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

/// Key of a server that is started like this by this user, with which the names of its files begin.
pub(crate) fn key(launch: &Launch, user: &str) -> String {
    let mut hash = SipHasher24::new();
    let mut part = |bytes: &[u8]| {
        hash.write_u64(bytes.len() as u64);
        hash.write(bytes);
    };
    let list = |part: &mut dyn FnMut(&[u8]), all: &mut dyn Iterator<Item = &OsStr>| {
        let all: Vec<&OsStr> = all.collect();
        part(&(all.len() as u64).to_le_bytes());
        all.into_iter().for_each(|text| part(text.as_bytes()));
    };
    list(&mut part, &mut launch.argv.iter().map(|text| &**text));
    part(format!("{:?}", launch.cwd).as_bytes());
    let env = launch.env.iter().flat_map(|(name, value)| [&**name, &**value]);
    list(&mut part, &mut { env });
    part(&[u8::from(launch.inherit.everything)]);
    list(&mut part, &mut launch.inherit.also.iter().map(OsStr::new));
    part(user.as_bytes());
    let hash = hash.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

/// Key of a server that is reached by this URL.
pub(crate) fn key_of_url(url: &str) -> String {
    let mut hash = SipHasher24::new();
    hash.write(url.as_bytes());
    let hash = hash.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

impl Manifests {
    /// The manifests below a state directory.
    pub(crate) fn of(state_dir: &Path) -> Self {
        let dirs =
            Dirs { manifests: state_dir.join("manifests"), approvals: state_dir.join("approvals") };
        Self { dirs, pending: Arc::default(), writer: None }
    }

    /// The manifests of this key that are known, each of other clients.
    pub(crate) fn load(&self, key: &str) -> Vec<Manifest> {
        let known = |path: &PathBuf| match read(path) {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read a manifest");
                None
            }
        };
        let files = files_of(&self.dirs.manifests, key).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the manifests");
            Vec::new()
        });
        files.iter().filter_map(known).collect()
    }

    /// The approvals of this key, each of another identity; `None` for one that cannot be read.
    pub(crate) fn load_approvals(&self, key: &str) -> Vec<Option<Approval>> {
        let known = |path: &PathBuf| {
            let read = bounded(path)
                .and_then(|text| Ok(serde_json::from_str::<KeptApproval<Approval>>(&text)?));
            match read {
                Ok(kept) if kept.format == FORMAT => Some(kept.approval),
                Ok(KeptApproval { format, server, .. }) => {
                    tracing::error!(path = %path.display(), server, format, "approvals of tools have another format: approve the tools again");
                    None
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "cannot read approvals of tools: approve the tools again");
                    None
                }
            }
        };
        let pending = self.pending();
        let is_of = |name: &str| {
            let rest = name.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let waiting = pending.iter().filter(|(name, _)| is_of(name));
        // UPS-19: those that are not written yet count, and nothing is approved that cannot be read.
        let mut all: Vec<_> = waiting.map(|(_, of)| Some(of.approval.clone())).collect();
        match files_of(&self.dirs.approvals, key) {
            Ok(files) => {
                let is_written = |path: &&PathBuf| {
                    let name = path.file_stem().and_then(OsStr::to_str);
                    name.is_none_or(|name| !pending.contains_key(name))
                };
                all.extend(files.iter().filter(is_written).map(known));
                // Where there was no room to keep it, the first list is not known to be one.
                let count = || fs::read_dir(&self.dirs.approvals).map_or(0, Iterator::count);
                if all.is_empty() && count() >= APPROVALS_MAX {
                    all.push(None);
                }
            }
            Err(error) => {
                tracing::error!(dir = %self.dirs.approvals.display(), %error, "cannot read approvals of tools");
                all.push(None);
            }
        }
        all
    }

    /// Has a manifest written by the thread for that.
    pub(crate) fn save(&mut self, key: &str, manifest: Manifest) {
        let name = file(key, &manifest.audience);
        self.order(Order::Manifest(name, Box::new(manifest)));
    }

    /// Has approved tools written by the thread for that.
    pub(crate) fn save_approval(&mut self, key: &str, server: &str, approval: Approval) {
        let name = file(key, &approval.identity);
        let kept = KeptApproval { format: FORMAT, server: server.to_owned(), approval };
        self.pending().insert(name, Arc::new(kept));
        self.order(Order::Approvals);
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        locked(&self.pending)
    }

    /// Hands an order to the thread, which is started if there is none.
    fn order(&mut self, order: Order) {
        if self.writer.is_none() {
            let (orders, received) = sync_channel(WAITING_MAX);
            let (dirs, pending) = (self.dirs.clone(), Arc::clone(&self.pending));
            let thread = std::thread::Builder::new()
                .name("manifests".into())
                .spawn(move || write_all(&dirs, &pending, &received));
            match thread {
                Ok(thread) => self.writer = Some(Writer { orders, thread }),
                Err(error) => tracing::warn!(%error, "cannot keep manifests of servers"),
            }
        }
        let Some(writer) = &self.writer else { return };
        match writer.orders.try_send(order) {
            // An order that is carried out later writes all approvals.
            Ok(()) | Err(TrySendError::Full(Order::Approvals)) => {}
            Err(TrySendError::Full(Order::Manifest(..)) | TrySendError::Disconnected(_)) => {
                tracing::warn!("a manifest was not kept: {WAITING_MAX} others are being written");
            }
        }
    }
}

/// The last manifests are written before the state directory is released.
impl Drop for Manifests {
    fn drop(&mut self) {
        if let Some(Writer { orders, thread }) = self.writer.take() {
            drop(orders);
            if thread.join().is_err() {
                tracing::error!("the thread that writes manifests panicked");
            }
        }
    }
}

/// Name of a file, without its ending.
fn file(key: &str, audience: &str) -> String {
    if audience.is_empty() {
        return key.to_owned();
    }
    let mut hash = SipHasher24::new();
    hash.write(audience.as_bytes());
    format!("{key}-{:016x}", hash.finish128().h1)
}

/// The files of a key in a directory, which need not be there.
fn files_of(dir: &Path, key: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| {
        let name = path.file_stem().map(OsStr::as_bytes).unwrap_or_default();
        let rest = name.strip_prefix(key.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
            && path.extension() == Some(OsStr::new(ENDING))
    });
    paths.sort();
    Ok(paths)
}

fn bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(BYTES_MAX + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn read(path: &Path) -> io::Result<Manifest> {
    let text = bounded(path)?;
    let kept: Kept<Manifest> = serde_json::from_str(&text)?;
    if kept.format != FORMAT {
        return Err(io::Error::other(format!("its format is {}, not {FORMAT}", kept.format)));
    }
    let manifest = kept.manifest;
    let lists = [&manifest.tools, &manifest.prompts, &manifest.resources, &manifest.templates];
    let all = lists.into_iter().flatten().chain([&manifest.identity]);
    // The engine puts them into messages as they are.
    for text in all {
        let raw: &RawValue = serde_json::from_str(text)?;
        if !raw.get().starts_with('{') || raw.get().len() != text.len() || text.contains('\n') {
            return Err(io::Error::other("an element is no JSON object on one line"));
        }
    }
    Ok(manifest)
}

fn write_all(dirs: &Dirs, pending: &Mutex<Pending>, orders: &Receiver<Order>) {
    for order in orders {
        if let Order::Manifest(name, manifest) = order {
            let dir = &*dirs.manifests;
            let written = write(dir, &name, &Kept { format: FORMAT, manifest });
            if let Err(error) = written.and_then(|()| small_file::remove_oldest(dir, FILES_MAX)) {
                tracing::warn!(dir = %dir.display(), %error, "cannot keep a manifest");
            }
        }
        write_approvals(&dirs.approvals, pending);
    }
}

/// Writes the approvals that wait. One that cannot be written waits for the next order, so that a
/// reload finds it.
fn write_approvals(dir: &Path, pending: &Mutex<Pending>) {
    let waiting = locked(pending).clone();
    for (name, approval) in waiting {
        match write_approval(dir, &name, &approval) {
            Ok(()) => {
                let mut pending = locked(pending);
                if pending.get(&name).is_some_and(|last| Arc::ptr_eq(last, &approval)) {
                    pending.remove(&name);
                }
            }
            Err(error) => tracing::error!(
                dir = %dir.display(),
                server = approval.server,
                %error,
                "cannot keep an approval of tools: after a restart the tools are approved anew"
            ),
        }
    }
}

fn write_approval(dir: &Path, name: &str, approval: &KeptApproval<Approval>) -> io::Result<()> {
    let count = fs::read_dir(dir).map_or(0, Iterator::count);
    if count >= APPROVALS_MAX && !dir.join(name).with_extension(ENDING).exists() {
        let why = format!("there are {count} files, of {APPROVALS_MAX}: remove old ones");
        return Err(io::Error::other(why));
    }
    write(dir, name, approval)
}

fn locked(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(dir: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(content)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
    }
    small_file::replace(&dir.join(name).with_extension(ENDING), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str) -> Manifest {
        Manifest {
            revision: "2025-06-18".into(),
            identity: r#"{"capabilities":{"tools":{}}}"#.into(),
            tools: vec![format!(r#"{{"name":"{name}", "x" : 1.50}}"#).into()],
            ..Manifest::default()
        }
    }

    fn launch(words: &[&str]) -> Launch {
        Launch::new(words.iter().copied())
    }

    /// UPS-09: keyed by command, arguments and environment.
    #[test]
    fn every_part_of_a_launch_changes_its_key() {
        let mut others = vec![launch(&["a", "b"]), launch(&["ab"]), launch(&["a", "", "b"])];
        let mut with = |change: &dyn Fn(&mut Launch)| {
            let mut launch = launch(&["a", "b"]);
            change(&mut launch);
            others.push(launch);
        };
        with(&|launch| launch.env = vec![("K".into(), "v".into())]);
        with(&|launch| launch.env = vec![("K".into(), "w".into())]);
        with(&|launch| launch.cwd = Some(PathBuf::from("/x").into()));
        with(&|launch| launch.inherit.everything = true);
        with(&|launch| launch.inherit.also = vec!["K".into()]);
        let mut keys: Vec<String> = others.iter().map(|launch| key(launch, "1")).collect();
        keys.push(key(&others[0], "2"));
        assert_eq!(key(&others[0], "1"), keys[0], "a key is stable");
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    /// UPS-09: a manifest is read back byte for byte, and the last one of a key counts.
    #[test]
    fn manifest_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifests = Manifests::of(dir.path());
        let of_ann = Manifest { audience: "session uid:1".into(), ..manifest("ann") };
        assert_eq!(manifests.load("k"), []);
        manifests.save("k", manifest("old"));
        manifests.save("k", manifest("new"));
        manifests.save("other", manifest("other"));
        manifests.save("k", of_ann.clone());
        drop(manifests);
        let manifests = Manifests::of(dir.path());
        assert_eq!(manifests.load("k"), [of_ann, manifest("new")]);
        assert_eq!(fs::read_dir(dir.path().join("manifests")).unwrap().count(), 3);
    }

    /// UPS-09: a damaged file is one that is not known, whatever its damage.
    #[test]
    fn damaged_manifest_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let good = serde_json::to_string(&Kept { format: FORMAT, manifest: manifest("x") });
        let good = good.unwrap();
        for (at, text) in [
            String::new(),
            good[..good.len() - 9].to_owned(),
            good.replace("\"format\":2", "\"format\":1"),
            good.replace("1.50}", "1.50"),
            good.replace("1.50}", "1.50\\n}"),
            good.replace(r#"{\"name\""#, r#"[{\"name\""#),
        ]
        .into_iter()
        .enumerate()
        {
            fs::create_dir_all(dir.path().join("manifests")).unwrap();
            fs::write(dir.path().join("manifests/k.json"), &text).unwrap();
            assert_eq!(Manifests::of(dir.path()).load("k"), [], "{at}: {text}");
        }
        fs::write(dir.path().join("manifests/k.json"), &good).unwrap();
        assert_eq!(Manifests::of(dir.path()).load("k").len(), 1);
    }

    /// UPS-19: an approval is read back, and one that is damaged is not taken for none.
    #[test]
    fn approval_is_read_back_or_told_to_be_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let tools = [("t".into(), vec!["{\"name\":\"t\"}".into()])];
        let common = Approval { identity: "".into(), tools: tools.into() };
        let of_ann = Approval { identity: "uid:1".into(), ..common.clone() };
        let mut manifests = Manifests::of(dir.path());
        assert_eq!(manifests.load_approvals("k"), []);
        manifests.save_approval("k", "s", of_ann.clone());
        manifests.save_approval("k", "s", common.clone());
        manifests.save_approval("other", "s", Approval::default());
        drop(manifests);
        let manifests = Manifests::of(dir.path());
        assert_eq!(manifests.load_approvals("k"), [Some(of_ann), Some(common.clone())]);
        for text in ["", "{}", r#"{"format":1,"server":"s","approval":{"tools":{}}}"#] {
            fs::write(dir.path().join("approvals/k.json"), text).unwrap();
            assert_eq!(manifests.load_approvals("k")[1], None, "{text}");
        }
    }

    /// UPS-19: an approval that cannot be written counts until the daemon ends, and nothing is taken for
    /// none where approvals cannot be read or had no room.
    #[test]
    fn approvals_without_a_place_are_no_absent_ones() {
        let dir = tempfile::tempdir().unwrap();
        let approvals = dir.path().join("approvals");
        fs::write(&approvals, "no directory").unwrap();
        let mut manifests = Manifests::of(dir.path());
        let approval = Approval { identity: "uid:1".into(), ..Approval::default() };
        for _ in 0..2 {
            manifests.save_approval("k", "s", approval.clone());
            assert_eq!(manifests.load_approvals("k"), [Some(approval.clone()), None]);
        }
        fs::remove_file(&approvals).unwrap();
        manifests.save("k", manifest("writes what waits"));
        drop(manifests);
        let manifests = Manifests::of(dir.path());
        assert_eq!(manifests.load_approvals("k"), [Some(approval)]);
        for at in 1..APPROVALS_MAX {
            fs::write(approvals.join(format!("f{at}.json")), "").unwrap();
        }
        assert_eq!(manifests.load_approvals("another"), [None]);
    }

    /// UPS-19: another program, URL or user has approvals of its own; a variable makes no difference.
    #[test]
    fn approvals_belong_to_a_program() {
        let key = |server, program: &[&str], user| {
            let program: Vec<&[u8]> = program.iter().map(|part| part.as_bytes()).collect();
            approval_key(server, &program, user)
        };
        let mut keys = vec![
            key("s", &["a", "b"], "1"),
            key("s", &["ab"], "1"),
            key("s", &["a", "b"], "2"),
            key("t", &["a", "b"], "1"),
            key("s", &["a"], "b1"),
        ];
        assert_eq!(keys[0], key("s", &["a", "b"], "1"), "a key is stable");
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
