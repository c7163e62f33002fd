//! Finding the daemon in the environment that an SDK leaves, as several users.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::user::User;

const TOOL: &str = "[[tool]]\nname = \"NAME\"\nbuiltin = \"echo\"\n";

/// A directory below `/run/user`, which is removed with this.
struct RunUser(PathBuf);

impl RunUser {
    fn of(user: &User) -> Self {
        let dir = PathBuf::from("/run/user").join(user.uid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        user.own(&dir);
        Self(dir)
    }
}

impl Drop for RunUser {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A user whose configuration has one tool.
fn user(tool: &str) -> Option<User> {
    let user = User::new()?;
    user.file(".config/ceased/config.toml", &TOOL.replace("NAME", tool));
    Some(user)
}

fn with_runtime_dir(mut command: Command, dir: &RunUser) -> Command {
    command.env("XDG_RUNTIME_DIR", &dir.0);
    command
}

#[test]
fn user_meets_its_daemon_with_and_without_a_runtime_directory() {
    let Some(ann) = user("of-ann") else { return };
    let run = RunUser::of(&ann);
    let spawned = ann.run(&["connect", "--spawn"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    assert!(run.0.join("ceased/ceased.sock").exists(), "{spawned:?}");
    for command in [ann.command(&["tools"]), with_runtime_dir(ann.command(&["tools"]), &run)] {
        let ran = ann.start(command).wait();
        assert!(ran.out.contains("of-ann"), "{ran:?}");
    }
    let again = ann.start(with_runtime_dir(ann.command(&["connect", "--spawn"]), &run)).wait();
    assert_eq!((again.code, again.err.as_str()), (Some(0), ""));
    assert_eq!(ann.processes("serve").len(), 1);
}

#[test]
fn without_run_user_the_socket_is_in_the_state_directory() {
    let Some(ann) = user("of-ann") else { return };
    let spawned = ann.run(&["connect", "--spawn"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    let dir = ann.home().join(".local/state/ceased/run");
    assert!(dir.join("ceased.sock").exists() && dir.join("ceased.sock.spawn").exists());
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let ran = ann.run(&["tools"]);
    assert!(ran.out.contains("of-ann"), "{ran:?}");
    // After a login, the daemon from before is still found.
    let run = RunUser::of(&ann);
    for args in [&["tools"][..], &["connect", "--spawn"]] {
        let ran = ann.start(with_runtime_dir(ann.command(args), &run)).wait();
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }
    assert_eq!(ann.processes("serve").len(), 1);
}

#[test]
fn users_and_root_do_not_meet_by_accident() {
    let (Some(ann), Some(bob), Some(root)) = (user("of-ann"), user("of-bob"), User::root()) else {
        return;
    };
    root.file(".config/ceased/config.toml", &TOOL.replace("NAME", "of-root"));
    let run = RunUser::of(&ann);
    assert_eq!(ann.run(&["connect", "--spawn"]).code, Some(0));
    let system = PathBuf::from("/run/ceased");
    let places_of_root = system.exists() || PathBuf::from("/run/user/0").exists();
    // Each of the others with the environment of ann, as after su or sudo.
    for (other, tool) in [(&bob, "of-bob"), (&root, "of-root")] {
        let borrowed = |args: &[&str]| {
            let mut command = with_runtime_dir(other.command(args), &run);
            // The state of this machine's root stays untouched.
            command.env("XDG_STATE_HOME", other.home().join("state"));
            command
        };
        let found = other.start(borrowed(&["tools"])).wait();
        assert!(!found.out.contains("of-ann"), "{found:?}");
        // The socket paths of this machine's root may be in use by its service.
        if other.uid == 0 && places_of_root {
            continue;
        }
        let spawned = other.start(borrowed(&["connect", "--spawn"])).wait();
        assert_eq!(spawned.code, Some(0), "{spawned:?}");
        let found = other.start(borrowed(&["tools"])).wait();
        assert!(found.out.contains(tool), "{found:?}");
        // A socket that root created for itself is no system daemon.
        let found = ann.run(&["tools"]);
        assert!(found.out.contains("of-ann") && !found.out.contains(tool), "{found:?}");
    }
    drop(root);
    if !places_of_root {
        fs::remove_file(system.join("ceased.sock.spawn")).unwrap();
        fs::remove_file(system.join("ceased.sock.log")).unwrap();
        let _ = fs::remove_file(system.join("ceased.sock.lock"));
        fs::remove_dir(system).unwrap();
    }
}
