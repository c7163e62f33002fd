//! The rule as a table, and with files, directories and links on disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use rustix::process::geteuid;

use super::*;

const FILE: Kind = Kind::File;
const DIR: Kind = Kind::Directory;
const LINK: Kind = Kind::Link;
const OWNER: Option<Flaw> = Some(Flaw::Owner);
const WRITABLE: Option<Flaw> = Some(Flaw::Writable);

/// SEC-02: the whole table, for root and for an ordinary user.
#[test]
fn only_files_controlled_by_root_or_this_user_are_accepted() {
    for (kind, owner, mode, us, want) in [
        (FILE, 7, 0o644, 7, None),
        (FILE, 7, 0o600, 7, None),
        (FILE, 7, 0o400, 7, None),
        (FILE, 0, 0o644, 7, None),
        (FILE, 0, 0o444, 0, None),
        (FILE, 8, 0o600, 7, OWNER),
        (FILE, 8, 0o666, 7, OWNER),
        (FILE, 7, 0o644, 0, OWNER),
        (FILE, 7, 0o666, 0, OWNER),
        (FILE, 0, 0o666, 0, WRITABLE),
        (FILE, 0, 0o664, 7, WRITABLE),
        (FILE, 7, 0o646, 7, WRITABLE),
        (FILE, 7, 0o620, 7, WRITABLE),
        // The sticky bit has no meaning for files.
        (FILE, 7, 0o1666, 7, WRITABLE),
        (DIR, 0, 0o755, 7, None),
        (DIR, 7, 0o700, 7, None),
        (DIR, 0, 0o1777, 7, None),
        (DIR, 7, 0o1777, 7, None),
        (DIR, 7, 0o777, 7, WRITABLE),
        (DIR, 0, 0o775, 0, WRITABLE),
        (DIR, 7, 0o755, 0, OWNER),
        // The owner of a sticky directory may rename files of other users in it.
        (DIR, 8, 0o1777, 7, OWNER),
        (LINK, 0, 0o777, 7, None),
        (LINK, 7, 0o777, 7, None),
        (LINK, 8, 0o777, 7, OWNER),
        (LINK, 7, 0o777, 0, OWNER),
        (Kind::Device, 0, 0o666, 7, None),
        (Kind::Device, 8, 0o620, 7, OWNER),
        (Kind::Pipe, 7, 0o600, 7, None),
        (Kind::Pipe, 7, 0o622, 7, WRITABLE),
        (Kind::Pipe, 8, 0o600, 7, OWNER),
        (FILE, accounts::OVERFLOW_UID, 0o644, 7, OWNER),
        (DIR, accounts::OVERFLOW_UID, 0o755, 7, OWNER),
    ] {
        let facts = Facts { kind, owner, mode, group_is_owner: false };
        assert_eq!(facts.flaw(us, false), want, "{facts:?} for {us}");
    }
}

#[test]
fn private_group_counts_as_the_owner() {
    for (mode, want) in [(0o664, None), (0o660, None), (0o666, WRITABLE), (0o662, WRITABLE)] {
        let facts = Facts { kind: FILE, owner: 7, mode, group_is_owner: true };
        assert_eq!(facts.flaw(7, false), want, "{facts:?}");
    }
}

#[test]
fn unmapped_directories_count_as_roots_and_files_do_not() {
    let facts =
        |kind, mode| Facts { kind, owner: accounts::OVERFLOW_UID, mode, group_is_owner: false };
    assert_eq!(facts(DIR, 0o755).flaw(7, true), None);
    assert_eq!(facts(DIR, 0o777).flaw(7, true), WRITABLE);
    assert_eq!(facts(FILE, 0o644).flaw(7, true), OWNER);
    assert!(maps("         0          0 4294967295\n", accounts::OVERFLOW_UID));
    assert!(!maps("  1000  1000  1\n", accounts::OVERFLOW_UID));
    assert!(maps("0 100000 1\n1 200000 65535\n", accounts::OVERFLOW_UID));
}

#[test]
fn secret_is_readable_by_its_owner_only() {
    for (owner, mode, us, want) in [
        (7, 0o600, 7, true),
        (7, 0o400, 7, true),
        (7, 0o640, 7, false),
        (7, 0o604, 7, false),
        (0, 0o640, 7, true),
        (0, 0o644, 7, false),
        (0, 0o640, 0, false),
    ] {
        assert_eq!(reads_secretly(owner, mode, us), want, "{owner} {mode:o} {us}");
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refused(path: &Path) -> String {
    match open(path, Secrecy::Public) {
        Err(Unfit::Refused { what, remedy }) => format!("{what}; {remedy}"),
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// The file itself, each directory above it, and each link on the way are checked.
#[test]
fn every_path_component_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (above, below) = (dir.path().join("above"), dir.path().join("above/below"));
    fs::create_dir_all(&below).unwrap();
    let file = below.join("file");
    fs::write(&file, "text").unwrap();
    chmod(&file, 0o644);
    let link = dir.path().join("link");
    symlink("above/../above/below/./file", &link).unwrap();
    let far = dir.path().join("far");
    symlink(&link, &far).unwrap();
    for good in [&file, &link, &far] {
        assert_eq!(read(good, Secrecy::Public, 4).unwrap(), b"text");
        assert!(matches!(read(good, Secrecy::Public, 3), Err(Unfit::Io(_))));
    }
    for (path, mode) in [(&file, 0o666), (&below, 0o777), (&above, 0o757)] {
        let before = fs::metadata(path).unwrap().permissions();
        chmod(path, mode);
        for way in [&file, &link, &far] {
            let said = refused(way);
            let shown = path.display();
            assert!(said.contains(&format!("{shown} (it belongs to uid ")), "{said}");
            assert!(said.contains(&format!("mode {mode:04o}")), "{said}");
            assert!(said.ends_with(&format!("chmod go-w {shown}")), "{said}");
        }
        fs::set_permissions(path, before).unwrap();
    }
    chmod(&above, 0o1777);
    assert!(open(&far, Secrecy::Public).is_ok(), "sticky, as /tmp");
    if geteuid().is_root() {
        for path in [&file, &below, &above] {
            chown(path, Some(1), None).unwrap();
            let said = refused(&far);
            assert!(said.contains(&format!("{} belongs to uid 1", path.display())), "{said}");
            assert!(said.contains(&format!("chown 0 {}", path.display())), "{said}");
            chown(path, Some(0), None).unwrap();
        }
        std::os::unix::fs::lchown(&link, Some(1), None).unwrap();
        let said = refused(&far);
        assert!(said.contains("the symbolic link") && said.contains("chown -h 0 "), "{said}");
    }
}

#[test]
fn non_file_is_rejected_without_blocking() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(dir.path()).contains("is a directory, not a regular file"));
    let pipe = dir.path().join("a pipe");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    assert!(open(&pipe, Secrecy::Secret).is_err());
    chmod(&pipe, 0o622);
    assert!(refused(&pipe).contains("chmod go-w "));
    chmod(&pipe, 0o600);
    if geteuid().is_root() {
        chown(&pipe, Some(1), None).unwrap();
        assert!(refused(&pipe).contains("belongs to uid 1"));
        chown(&pipe, Some(0), None).unwrap();
    }
    let written = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(written, "text").unwrap());
    assert_eq!(read(&pipe, Secrecy::Public, 9).unwrap(), b"text");
    writer.join().unwrap();
    let links = dir.path().join("links");
    symlink("links", &links).unwrap();
    let Err(Unfit::Io(error)) = open(&links, Secrecy::Public) else { panic!("a loop") };
    assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    let below = Path::new("/dev/null/below");
    assert!(matches!(open(below, Secrecy::Public), Err(Unfit::Io(_))));
    assert_eq!(read(Path::new("/dev/null"), Secrecy::Public, 9).unwrap(), b"");
    assert!(open(Path::new("/dev/null"), Secrecy::Secret).is_err());
}

/// A pipe of a shell's `--config <(…)`.
#[test]
fn open_pipe_is_read_to_its_end() {
    let (ours, theirs) = rustix::pipe::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", ours.as_raw_fd());
    let writer = std::thread::spawn(move || rustix::io::write(&theirs, b"text").unwrap());
    assert_eq!(read(Path::new(&path), Secrecy::Public, 9).unwrap(), b"text");
    writer.join().unwrap();
    assert!(open(Path::new(&path), Secrecy::Secret).is_err());
}

#[test]
fn paths_are_quoted_for_a_shell() {
    assert_eq!(quoted(Path::new("/etc/a.toml")), "/etc/a.toml");
    assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
}
