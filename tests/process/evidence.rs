//! Evidence of the job that a process belongs to: for its identity (SEC-05) and for its end
//! (SEC-06). Processes forge all that they can choose: a number, a group, and the ids of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ceased::process::{Ending, Exit, JobId, Located, Membership, Order, Orphans, Report};
use ceased_tests::turns::Turns;
use rustix::process::{Pid, geteuid};

use crate::process_kit::{Rig, Tier, carriers, eventually, marker};
use crate::{argument, rig, rig_with, run_alone, run_ordinary};

/// A command that starts `sleep $1` as an orphan in a session of its own, with the number `$2` in
/// its environment and after the command `$3`, and then sleeps.
const WITH_ORPHAN: &str = "(CEASED_JOB=$2 setsid sh -c \"$3\"'; exec sleep $0' $1 &); \
                           echo 1 >&3; exec sleep 1000";

/// Each test searches the process table over and over.
static TURNS: Turns = Turns::new(1);

fn in_both_tiers(test: &str) {
    let _turn = TURNS.take();
    for tier in ["Cgroup", "Guard"] {
        run_alone(test, tier);
        run_ordinary(test, tier);
    }
}

/// A supervisor of the tier that the argument names, which adopts orphans.
fn adopting() -> Option<(Tier, Rig)> {
    let name = argument()?;
    let tier = if name == "Cgroup" { Tier::Cgroup } else { Tier::Guard };
    Some((tier, rig_with(tier, Orphans::Adopt)?))
}

/// A job that sleeps and does nothing else; its command carries the mark.
fn bystander(rig: &mut Rig, mark: &str) -> JobId {
    let job = rig.shell("echo 1 >&3; exec sleep $1", mark);
    rig.wait_ready(job);
    job
}

fn with_orphan(rig: &mut Rig, mark: &str, forged: JobId, first: &str) -> (JobId, i32) {
    let forged = forged.to_string();
    let job = rig.run(&["sh", "-c", WITH_ORPHAN, "sh", mark, &forged, first]);
    rig.wait_ready(job);
    let me = std::process::id().cast_signed();
    (job, sleeper_where(mark, |pid| parent(pid) == me || rig.base.is_none()))
}

/// The process `sleep MARK` once a condition holds for it.
fn sleeper_where(mark: &str, holds: impl Fn(i32) -> bool) -> i32 {
    let mut found = 0;
    eventually("the orphan sleeps", || {
        let all = carriers(mark).into_iter();
        let mut asleep = all.filter(|(pid, args)| args.starts_with("sleep") && holds(*pid));
        found = asleep.next().map_or(0, |(pid, _)| pid);
        found != 0
    });
    found
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0)
}

fn locate(rig: &Rig, pid: i32) -> Located {
    let pid = Pid::from_raw(pid).unwrap();
    rig.order(Order::Locate { ticket: 7, pid, process: None });
    loop {
        if let Report::Located { ticket: 7, located } = rig.report() {
            return located;
        }
    }
}

fn kill(rig: &Rig, job: JobId) -> Exit {
    rig.order(Order::Kill(job));
    match rig.wait_ending(job) {
        Ending::Exited(exit) => *exit,
        Ending::NotStarted(reason) => panic!("not started: {reason}"),
    }
}

fn is_alive(mark: &str) -> bool {
    carriers(mark).iter().any(|(_, args)| args.starts_with("sleep"))
}

/// SEC-05: the group and the descent of a process are told as the kernel knows them.
#[test]
fn process_is_located_by_group_and_descent() {
    in_both_tiers("evidence::located");
}

#[test]
#[ignore = "runs in a process of its own"]
fn located() {
    let Some((tier, mut rig)) = adopting() else { return };
    let (mark, other) = (marker(), marker());
    let foreign = bystander(&mut rig, &other);
    let of = |group, descent| {
        let group = if tier == Tier::Cgroup { group } else { None };
        Located::Alive(Membership { group, descent, is_doubtful: false })
    };
    assert_eq!(locate(&rig, sleeper_where(&other, |_| true)), of(Some(foreign), Some(foreign)));
    let (job, orphan) = with_orphan(&mut rig, &mark, foreign, ":");
    let by_guard = if tier == Tier::Guard { Some(job) } else { None };
    assert_eq!(locate(&rig, orphan), of(Some(job), by_guard), "a forged number names {foreign}");
    assert_eq!(locate(&rig, 1), of(None, None));
    kill(&rig, job);
    assert_eq!(locate(&rig, orphan), Located::Gone);
    kill(&rig, foreign);
}

/// SEC-06: an orphan that forges the number of another job ends with its own, not with the other.
#[test]
fn forged_number_moves_no_process_to_another_job() {
    in_both_tiers("evidence::forged");
}

#[test]
#[ignore = "runs in a process of its own"]
fn forged() {
    let Some((_, mut rig)) = adopting() else { return };
    for is_own_first in [true, false] {
        let (mark, other) = (marker(), marker());
        let foreign = bystander(&mut rig, &other);
        let (job, _) = with_orphan(&mut rig, &mark, foreign, ":");
        if is_own_first {
            assert_eq!(kill(&rig, job).survivors, Some(0));
            assert!(!is_alive(&mark) && is_alive(&other));
            assert_eq!(kill(&rig, foreign).survivors, Some(0));
        } else {
            let exit = kill(&rig, foreign);
            assert_eq!(exit.survivors, Some(0));
            assert!(exit.signalled <= 1, "its own command alone: {}", exit.signalled);
            assert!(is_alive(&mark), "it is of another job");
            assert_eq!(kill(&rig, job).survivors, Some(0));
        }
        assert!(!is_alive(&mark) && !is_alive(&other));
    }
}

/// SEC-05, SEC-06: an orphan that forges a number and joins the group of that job proves nothing: it
/// has no identity, and no receipt says that it is gone.
#[test]
fn joined_group_proves_nothing() {
    let _turn = TURNS.take();
    run_alone("evidence::joined", "Cgroup");
    run_ordinary("evidence::joined", "Cgroup");
}

#[test]
#[ignore = "runs in a process of its own"]
fn joined() {
    let Some((_, mut rig)) = adopting() else { return };
    let mut unknown = 0;
    for _ in 0..3 {
        let (mark, other) = (marker(), marker());
        let foreign = bystander(&mut rig, &other);
        let group = rig.group_of(sleeper_where(&other, |_| true)).unwrap();
        let join = format!("echo 0 > {}/cgroup.procs", group.display());
        let (job, orphan) = with_orphan(&mut rig, &mark, foreign, &join);
        let Located::Alive(membership) = locate(&rig, orphan) else { panic!("it sleeps") };
        assert_eq!((membership.group, membership.descent), (None, None), "{membership:?}");
        assert!(membership.is_doubtful, "{membership:?}");
        let receipt = kill(&rig, job).survivors;
        assert_eq!(receipt.is_none(), is_alive(&mark), "the receipt says {receipt:?}");
        unknown += usize::from(receipt.is_none());
        assert!(is_alive(&other), "the other job runs on");
        assert_eq!(kill(&rig, foreign).survivors, Some(0));
        eventually("both are gone", || !is_alive(&mark) && !is_alive(&other));
    }
    assert!(unknown > 0, "it was never seen in the group of the other job first");
}

/// SEC-06: an orphan outside of every group that forges a number holds up no job, is hidden from no
/// receipt, and is gone when no job is left that it may be of.
#[test]
fn orphan_outside_of_every_group_is_of_no_known_job() {
    let _turn = TURNS.take();
    run_alone("evidence::outside", "Cgroup");
    run_ordinary("evidence::outside", "Cgroup");
}

#[test]
#[ignore = "runs in a process of its own"]
fn outside() {
    let Some((_, mut rig)) = adopting() else { return };
    let procs: PathBuf = rig.base.as_deref().and_then(Path::parent).unwrap().join("cgroup.procs");
    for is_named in [false, true] {
        let (mark, other) = (marker(), marker());
        let foreign = bystander(&mut rig, &other);
        let named = if is_named { JobId::new(foreign.get() + 1) } else { foreign };
        let leave = format!("echo 0 > {}", procs.display());
        let (job, orphan) = with_orphan(&mut rig, &mark, named, &leave);
        let Located::Alive(membership) = locate(&rig, orphan) else { panic!("it sleeps") };
        assert!(membership.is_doubtful && membership.group.is_none(), "{membership:?}");
        let receipt = kill(&rig, job).survivors;
        assert_eq!(receipt.is_none(), is_alive(&mark), "the receipt says {receipt:?}");
        assert!(!is_named || !is_alive(&mark), "it names the job that was killed");
        kill(&rig, foreign);
        eventually("both are gone", || !is_alive(&mark) && !is_alive(&other));
    }
}

/// Starts a process with this id, which must be free; `None` if the kernel offers no way.
fn start_with_id(id: i32, start: &mut dyn FnMut() -> Child) -> Option<Child> {
    for _ in 0..2_000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (id - 1).to_string()).ok()?;
        let mut child = start();
        if child.id().cast_signed() == id {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    None
}

/// SEC-05, SEC-06: a process that gets the number of a command that has ended, and leads a session of
/// that number, belongs to its own job.
#[test]
fn used_number_moves_no_process_to_another_job() {
    let _turn = TURNS.take();
    if geteuid().is_root() {
        run_alone("evidence::used_number", "Cgroup");
    } else {
        eprintln!("SKIPPED: choosing a process id requires root");
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn used_number() {
    let Some((_, mut rig)) = adopting() else { return };
    let (mark, other) = (marker(), marker());
    // The command of the first job ends, and an orphan in another session keeps the job alive.
    let script = "(setsid sleep $1 &); echo $$ >&3";
    let old = rig.shell(script, &other);
    let Report::Progress { progress, .. } = rig.report() else { panic!("no progress") };
    let number = format!("{progress}").parse::<i32>().unwrap();
    eventually("the command is gone", || !Path::new(&format!("/proc/{number}")).exists());
    // A process of the second job takes its number, and becomes an orphan.
    let script = "(until [ \"$(cat /proc/$2/comm 2>/dev/null)\" = sleep ]; do \
                     echo $(($2 - 1)) > /proc/sys/kernel/ns_last_pid || exit 3; \
                     setsid sh -c '[ $$ = $1 ] && exec sleep $0' $1 $2 & \
                     sleep 0.02; \
                   done) || exit 3; echo 1 >&3; exec sleep 1000";
    let new = rig.run(&["sh", "-c", script, "sh", &mark, &number.to_string()]);
    loop {
        let report = rig.report();
        if matches!(report, Report::Progress { job, .. } if job == new) {
            break;
        }
        if matches!(report, Report::Ended { job, .. } if job == new) {
            return eprintln!("SKIPPED: the kernel lets no process id be chosen");
        }
    }
    let orphan = sleeper_where(&mark, |_| true);
    assert_eq!(orphan, number);
    let Located::Alive(membership) = locate(&rig, orphan) else { panic!("it sleeps") };
    assert_eq!(membership.group, Some(new), "{membership:?}");
    assert_eq!(kill(&rig, old).survivors, Some(0));
    assert!(is_alive(&mark) && !is_alive(&other), "it is of the second job");
    assert_eq!(kill(&rig, new).survivors, Some(0));
    assert!(!is_alive(&mark));
}

/// SEC-05: a group elsewhere with the name of a job's group is no group of the job, and a process
/// with the number of a command that has ended is outside of jobs.
#[test]
fn foreign_process_is_outside_of_jobs() {
    let Some(mut rig) = rig(Tier::Cgroup) else { return };
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: requires root");
    }
    let (mark, foreign) = (marker(), marker());
    let job = bystander(&mut rig, &mark);
    let command = sleeper_where(&mark, |_| true);
    let group = rig.group_of(command).unwrap();
    let base = rig.base.clone().unwrap();
    let fake = base.parent().unwrap().join(format!("fake-{}", std::process::id()));
    let below = fake.join(base.file_name().unwrap()).join(group.file_name().unwrap());
    fs::create_dir_all(&below).unwrap();
    let start = || Command::new("setsid").args(["sleep", &foreign]).spawn().unwrap();
    let mut stranger = start();
    fs::write(below.join("cgroup.procs"), stranger.id().to_string()).unwrap();
    let outside = Located::Alive(Membership::default());
    assert_eq!(locate(&rig, stranger.id().cast_signed()), outside);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    eventually("the group is empty", || crate::remove_groups(&fake));
    assert_eq!(kill(&rig, job).survivors, Some(0));
    let Some(mut stranger) = start_with_id(command, &mut || start()) else {
        return eprintln!("SKIPPED: the kernel lets no process id be chosen");
    };
    let next = bystander(&mut rig, &mark);
    assert_eq!(locate(&rig, command), outside);
    assert_eq!(kill(&rig, next).survivors, Some(0));
    assert!(stranger.try_wait().unwrap().is_none(), "it is of no job");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
