//! Working directory and resource limits of a command.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ceased::process::{Ending, Launch, WorkingDir};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::process_kit::{Rig, Tier};
use crate::{argument, rig, run_alone};

const TIERS: [Tier; 3] = [Tier::Cgroup, Tier::Guard, Tier::Groups];

fn rigs() -> impl Iterator<Item = Rig> {
    TIERS.into_iter().filter_map(rig)
}

/// The current user, and the user `nobody` if this process can change its user.
fn users() -> Vec<Option<u32>> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED as another user: requires root");
    }
    [None, Some(1)].into_iter().filter(|user| user.is_none() || is_root).collect()
}

/// Output of `pwd -P` in a directory below a base, or the reason why the command does not start.
fn directory_of(
    rig: &mut Rig,
    base: &Path,
    below: &str,
    user: Option<u32>,
) -> Result<String, String> {
    let cwd = Some(WorkingDir { base: base.to_owned(), below: Some(below.into()) });
    let launch = rig.command(&["pwd", "-P"]);
    let job = rig.launch(Launch { cwd, user, ..launch });
    match rig.wait_ending(job) {
        Ending::Exited(exit) => Ok(exit.stdout.text().trim_end().to_owned()),
        Ending::NotStarted(reason) => Err(reason),
    }
}

/// SEC-03: a symbolic link below the base cannot lead out of it.
#[test]
fn directory_below_a_base_stays_there() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let base = dir.join("base");
    fs::create_dir_all(base.join("a/b")).unwrap();
    fs::create_dir_all(dir.join("base2")).unwrap();
    symlink("/etc", base.join("etc")).unwrap();
    symlink("../base2", base.join("beside")).unwrap();
    symlink("../..", base.join("a/up")).unwrap();
    for mut rig in rigs() {
        for user in users() {
            for good in ["a/b", "a//./b/", "."] {
                let found = directory_of(&mut rig, &base, good, user).unwrap();
                assert_eq!(Path::new(&found), base.join(good).canonicalize().unwrap());
            }
            for bad in ["etc", "etc/ssl", "beside", "a/up", "a/up/base2", "..", "a/../../base2"] {
                let why = directory_of(&mut rig, &base, bad, user).unwrap_err();
                assert!(why.contains("must stay below") && why.contains("base\""), "{bad}: {why}");
            }
            let why = directory_of(&mut rig, &base, "none", user).unwrap_err();
            assert!(why.contains("No such file"), "{why}");
        }
    }
}

/// SEC-03: the same for a link created between check and start.
#[test]
fn directory_replaced_by_a_link_does_not_lead_out_of_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    fs::create_dir(base.join("x")).unwrap();
    symlink("/etc", base.join("y")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let flags = RenameFlags::EXCHANGE;
                renameat_with(CWD, base.join("x"), CWD, base.join("y"), flags).unwrap();
            }
        });
        let checked = std::panic::catch_unwind(|| {
            for mut rig in rigs() {
                for _ in 0..40 {
                    match directory_of(&mut rig, &base, "x", None) {
                        Ok(found) => assert!(Path::new(&found).starts_with(&base), "{found}"),
                        Err(why) => assert!(why.contains("must stay below"), "{why}"),
                    }
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}

fn output(rig: &mut Rig, script: &str, user: Option<u32>) -> String {
    let launch = rig.command(&["sh", "-c", script]);
    let job = rig.launch(Launch { user, ..launch });
    rig.wait_exit(job).stdout.text()
}

/// SEC-01: the command gets the original soft limit of open files, not the daemon's raised one.
#[test]
fn limit_of_files_is_the_original_one() {
    run_alone("place::with_a_raised_limit_of_files", "1");
}

#[test]
#[ignore = "runs in a process of its own"]
fn with_a_raised_limit_of_files() {
    if argument().is_none() {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(200);
    setrlimit(Resource::Nofile, limit).unwrap();
    for mut rig in rigs() {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
        for user in users() {
            assert_eq!(output(&mut rig, "ulimit -Sn", user), "200\n", "{user:?}");
        }
        assert_eq!(getrlimit(Resource::Nofile), limit);
    }
}

/// SEC-01: root's privileges (priorities, core files, locked memory) do not pass to another user.
#[test]
fn limits_of_root_are_not_inherited_by_other_users() {
    if rustix::process::geteuid().is_root() {
        run_alone("place::with_the_limits_of_root", "1");
    } else {
        eprintln!("SKIPPED: requires root");
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn with_the_limits_of_root() {
    if argument().is_none() {
        return;
    }
    let mut limit = getrlimit(Resource::Core);
    limit.current = limit.maximum;
    setrlimit(Resource::Core, limit).unwrap();
    let has_priority = rustix::process::setpriority_process(None, -5).is_ok()
        && fs::write("/proc/self/oom_score_adj", "-100").is_ok();
    let script = "nice; cat /proc/self/oom_score_adj; ulimit -Sc; ulimit -Sn; ulimit -Hl";
    for mut rig in rigs() {
        let theirs = output(&mut rig, script, Some(1));
        let [nice, score, core, files, locked] = *theirs.lines().collect::<Vec<_>>() else {
            panic!("{theirs}")
        };
        assert_eq!((nice, score, core), ("0", "0", "0"), "{theirs}");
        assert!(files.parse::<u64>().unwrap() <= 1024, "{theirs}");
        assert!(locked.parse::<u64>().unwrap() <= 8192, "{theirs}");
        if has_priority {
            let ours = output(&mut rig, "nice; cat /proc/self/oom_score_adj", None);
            assert_eq!(ours, "-5\n-100\n");
        }
    }
}
