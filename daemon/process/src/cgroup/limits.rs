//! Resource limits of control groups: the controllers that the groups of jobs have, and the files in
//! which the limits of a job are written.
//!
//! The kernel lets a group other than the root offer controllers to its children only while no
//! process is in the group itself. So a daemon that needs them in its own group moves to a group
//! below, which succeeds if it is the only process there, as in a unit with `Delegate=yes`.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use crate::bounds::{Bounds, Controller, Reached};

/// Group of the daemon itself, below the group that it was started in. It does not look like a base
/// group, whose name has a process id after the prefix.
const OWN_GROUP: &str = "ceased-daemon";
/// Period of `cpu.max` in microseconds, the kernel's default.
const CPU_PERIOD: u64 = 100_000;

/// Makes a controller available in the groups below `base`.
///
/// # Errors
/// The reason, and the remedy.
pub(super) fn enable(base: &Path, controller: Controller) -> Result<(), String> {
    if !has(base, "cgroup.controllers", controller) {
        let parent = base.parent().unwrap_or(base);
        offer(parent, controller)?;
    }
    subtree(base, controller).map_err(|error| cannot(base, controller, &error))
}

/// Has the group of the daemon offer a controller to its children.
fn offer(group: &Path, controller: Controller) -> Result<(), String> {
    available(group, controller)?;
    match subtree(group, controller) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            step_aside(group)?;
            subtree(group, controller).map_err(|error| cannot(group, controller, &error))
        }
        result => result.map_err(|error| cannot(group, controller, &error)),
    }
}

/// Whether a controller may be offered below a group.
///
/// # Errors
/// The reason, and the remedy.
pub(super) fn available(group: &Path, controller: Controller) -> Result<(), String> {
    if has(group, "cgroup.controllers", controller) {
        return Ok(());
    }
    Err(format!(
        "the control group {} does not have the controller `{}`; a unit of systemd has it with \
         Delegate=yes, and a machine that uses it in version 1 of control groups has it in version 2 \
         when it is started with systemd.unified_cgroup_hierarchy=1",
        group.display(),
        controller.name()
    ))
}

fn cannot(group: &Path, controller: Controller, error: &io::Error) -> String {
    format!(
        "cannot enable the controller `{}` in the control group {}: {error}",
        controller.name(),
        group.display()
    )
}

/// Whether a file of a group names a controller.
fn has(group: &Path, file: &str, controller: Controller) -> bool {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    text.split_whitespace().any(|name| name == controller.name())
}

fn subtree(group: &Path, controller: Controller) -> io::Result<()> {
    if has(group, "cgroup.subtree_control", controller) {
        return Ok(());
    }
    write(&group.join("cgroup.subtree_control"), &format!("+{}", controller.name()))
}

/// Moves this process out of a group into one below.
fn step_aside(group: &Path) -> Result<(), String> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let own = std::process::id().to_string();
    let others: Vec<&str> = text.lines().filter(|pid| *pid != own).collect();
    if let [first, ..] = others.as_slice() {
        return Err(format!(
            "processes that are not of this daemon, such as {first}, are in its control group {}; a \
             unit of systemd with Delegate=yes gives the daemon a group of its own",
            group.display()
        ));
    }
    let aside = group.join(OWN_GROUP);
    let moved = match fs::create_dir(&aside) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => write(&aside.join("cgroup.procs"), &own),
    };
    moved.map_err(|error| format!("cannot move to the control group {}: {error}", aside.display()))
}

/// Writes the bounds of a job into its group, as far as their controllers are `enabled`.
pub(super) fn bound(
    group: &Path,
    bounds: &Bounds,
    is_enabled: impl Fn(Controller) -> bool,
) -> io::Result<()> {
    let set = |file: &str, text: String| {
        let path = group.join(file);
        write(&path, &text)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    if let Some(bytes) = bounds.memory_max.filter(|_| is_enabled(Controller::Memory)) {
        // Without this the job would go on in swap space, where there is some.
        match set("memory.swap.max", "0".into()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // The whole job: one that has lost one process of several may hang.
        set("memory.oom.group", "1".into())?;
        set("memory.max", bytes.to_string())?;
    }
    if let Some(count) = bounds.pids_max.filter(|_| is_enabled(Controller::Pids)) {
        set("pids.max", count.to_string())?;
    }
    if let Some(percent) = bounds.cpu_max.filter(|_| is_enabled(Controller::Cpu)) {
        let quota = u64::from(percent) * (CPU_PERIOD / 100);
        set("cpu.max", format!("{quota} {CPU_PERIOD}"))?;
    }
    Ok(())
}

/// The bounds that the processes of a group have reached so far.
pub(super) fn reached(group: &Path, bounds: &Bounds) -> Reached {
    Reached {
        memory_max: bounds.memory_max.filter(|_| counts(group, "memory.events", "oom_kill")),
        pids_max: bounds.pids_max.filter(|_| counts(group, "pids.events", "max")),
    }
}

/// Whether the counter `name` in a file of a group is above zero.
fn counts(group: &Path, file: &str, name: &str) -> bool {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.any(|(key, count)| key == name && count.trim() != "0")
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bounds =
        Bounds { memory_max: Some(64 << 20), pids_max: Some(32), cpu_max: Some(150), nice: None };

    /// A folder with the files of a group.
    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn text(dir: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(dir.path().join(file)).unwrap()
    }

    #[test]
    fn bounds_are_written_where_their_controllers_are() {
        const FILES: [&str; 5] =
            ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"];
        let dir = group(&FILES.map(|file| (file, "")));
        bound(dir.path(), &ALL, |_| true).unwrap();
        let written = FILES.map(|file| text(&dir, file));
        assert_eq!(written, ["67108864", "0", "1", "32", "150000 100000"]);

        let dir = group(&FILES.map(|file| (file, "")));
        bound(dir.path(), &ALL, |controller| controller == Controller::Pids).unwrap();
        assert_eq!(FILES.map(|file| text(&dir, file)), ["", "", "", "32", ""]);
        bound(dir.path(), &Bounds::default(), |_| true).unwrap();
        assert_eq!(text(&dir, "memory.max"), "");
    }

    #[test]
    fn kernel_without_swap_limits_still_bounds_memory() {
        let dir = group(&[("memory.max", ""), ("memory.oom.group", "")]);
        let bounds = Bounds { memory_max: Some(1 << 20), ..Bounds::default() };
        bound(dir.path(), &bounds, |_| true).unwrap();
        assert_eq!(text(&dir, "memory.max"), "1048576");
    }

    #[test]
    fn bound_that_cannot_be_written_names_its_file() {
        let dir = group(&[]);
        let why = bound(dir.path(), &ALL, |it| it == Controller::Cpu).unwrap_err().to_string();
        assert!(why.contains("cpu.max: No such file"), "{why}");
    }

    #[test]
    fn reached_bounds_are_read_from_the_events_of_the_group() {
        let calm = [("memory.events", "low 0\noom 0\noom_kill 0\n"), ("pids.events", "max 0\n")];
        assert_eq!(reached(group(&calm).path(), &ALL), Reached::default());
        let hit = [("memory.events", "max 9\noom 1\noom_kill 2\n"), ("pids.events", "max 17\n")];
        let both = Reached { memory_max: ALL.memory_max, pids_max: ALL.pids_max };
        assert_eq!(reached(group(&hit).path(), &ALL), both);
        assert_eq!(reached(group(&hit).path(), &Bounds::default()), Reached::default());
        assert_eq!(reached(group(&[]).path(), &ALL), Reached::default());
    }

    #[test]
    fn missing_controller_is_named_with_the_remedy() {
        let parent = group(&[("cgroup.controllers", "cpu pids\n"), ("cgroup.subtree_control", "")]);
        let base = parent.path().join("base");
        fs::create_dir(&base).unwrap();
        let why = enable(&base, Controller::Memory).unwrap_err();
        assert!(why.contains("does not have the controller `memory`"), "{why}");
        assert!(why.contains("Delegate=yes"), "{why}");
    }

    #[test]
    fn controller_is_enabled_in_the_group_and_below_its_parent() {
        let parent = group(&[("cgroup.controllers", "cpu pids\n"), ("cgroup.subtree_control", "")]);
        let base = parent.path().join("base");
        fs::create_dir(&base).unwrap();
        fs::write(base.join("cgroup.subtree_control"), "").unwrap();
        enable(&base, Controller::Pids).unwrap();
        assert_eq!(text(&parent, "cgroup.subtree_control"), "+pids");
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+pids");
    }

    #[test]
    fn daemon_does_not_leave_a_group_that_it_shares() {
        let own = std::process::id();
        let shared = group(&[("cgroup.procs", &format!("{own}\n1\n"))]);
        let why = step_aside(shared.path()).unwrap_err();
        assert!(why.contains("such as 1,"), "{why}");
        assert!(!shared.path().join(OWN_GROUP).exists());
    }
}
