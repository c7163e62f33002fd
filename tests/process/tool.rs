//! A command's environment, descriptors, output and exit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Instant;

use ceased::process::{Ending, Inherit, Launch, Order, Report, Stopped};
use ceased_tests::binary::write_program;

use crate::process_kit::{
    Rig, TIME_LIMIT, Tier, assert_none_left, carriers, children, eventually, marker,
};
use crate::{alone, argument, rig, run_alone};

const TIERS: [Tier; 3] = [Tier::Cgroup, Tier::Guard, Tier::Groups];

fn rigs() -> impl Iterator<Item = Rig> {
    TIERS.into_iter().filter_map(rig)
}

#[test]
fn output_and_exit_code_are_reported() {
    for mut rig in rigs() {
        let job = rig.run(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
        let exit = rig.wait_exit(job);
        assert_eq!((exit.code, exit.signal), (Some(7), None));
        assert_eq!((exit.stopped, exit.signalled), (Stopped::No, 0));
        assert_eq!((exit.stdout.text().as_str(), exit.stderr.text().as_str()), ("out\n", "err\n"));
        let job = rig.run(&["sh", "-c", "kill -USR1 $$"]);
        assert_eq!(rig.wait_exit(job).signal, Some(10));
    }
}

#[test]
fn input_of_any_size_is_written() {
    for mut rig in rigs() {
        let job = rig.run(&["cat"]);
        assert_eq!(rig.wait_exit(job).stdout.text(), "");
        for size in [0, 1, 65_536, 3_000_000] {
            let mut launch = rig.command(&["wc", "-c"]);
            launch.stdin = Some(vec![b'x'; size]);
            let job = rig.launch(launch);
            assert_eq!(rig.wait_exit(job).stdout.text().trim(), size.to_string());
        }
        // A tool that does not read its input delays no one else's job.
        let mut launch = rig.command(&["true"]);
        launch.stdin = Some(vec![b'x'; 3_000_000]);
        let job = rig.launch(launch);
        assert_eq!(rig.wait_exit(job).code, Some(0));
    }
}

#[test]
fn environment_and_directory_are_set() {
    for mut rig in rigs() {
        let mut launch = rig.command(&["sh", "-c", "env; pwd"]);
        launch.env = vec![("ADDED".into(), "yes".into())];
        launch.cwd = Some("/usr".into());
        let job = rig.launch(launch);
        let text = rig.wait_exit(job).stdout.text();
        let lines: Vec<&str> = text.lines().collect();
        for want in ["ADDED=yes", "CEASED_PROGRESS=3", "/usr"] {
            assert!(lines.contains(&want), "{want} in {text}");
        }
        assert!(lines.contains(&format!("CEASED_JOB={job}").as_str()), "{text}");
        assert!(lines.iter().any(|line| line.starts_with("PATH=")), "{text}");
    }
}

#[test]
fn variables_of_the_daemon_are_not_inherited() {
    let mut command = alone("tool::private_environment", "1");
    command.env("NOTIFY_SOCKET", "/x").env("WATCHDOG_USEC", "1").env("LISTEN_FDS", "1");
    command.env("CEASED_TASK", "of an outer daemon").env("INHERITED", "yes");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn private_environment() {
    if argument().is_none() {
        return;
    }
    for mut rig in rigs() {
        let job = rig.run(&["env"]);
        let text = rig.wait_exit(job).stdout.text();
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "CEASED_TASK", "CEASED_GUARD"]
        {
            assert!(!text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
        }
        assert!(!text.contains("INHERITED"), "{text}");
        for (everything, also) in [(true, Vec::new()), (false, vec!["INHER*".to_owned()])] {
            let mut launch = rig.command(&["env"]);
            launch.inherit = Inherit { everything, also };
            let job = rig.launch(launch);
            let text = rig.wait_exit(job).stdout.text();
            assert!(text.lines().any(|line| line == "INHERITED=yes"), "{text}");
            assert!(!text.contains("NOTIFY_SOCKET"), "{text}");
        }
    }
}

/// A command starts with four descriptors, no blocked or ignored signal, and its own session.
#[test]
fn command_starts_without_inherited_state() {
    // Inheritable on purpose, as an embedding program may have them.
    let leaked = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    for mut rig in rigs() {
        let marker = marker();
        let job = rig.run(&["sleep", &marker]);
        let started = |(pid, args): (i32, String)| args.starts_with("sleep").then_some(pid);
        let mut pid = 0;
        eventually("it runs", || {
            pid = carriers(&marker).into_iter().find_map(started).unwrap_or(0);
            pid != 0
        });
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for set in ["SigBlk", "SigIgn", "SigCgt"] {
            let line = status.lines().find(|line| line.starts_with(set)).unwrap();
            assert!(line.ends_with("\t0000000000000000"), "{line}");
        }
        // A starting program opens further ones for a moment.
        eventually("the command has exactly these descriptors", || {
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            let mut fds: Vec<_> = fds.map(|entry| entry.file_name()).collect();
            fds.sort();
            fds == ["0", "1", "2", "3"]
        });
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let pid = pid.to_string();
        assert_eq!(fields.get(2..4), Some(&[pid.as_str(), pid.as_str()][..]), "group and session");
        rig.order(Order::Kill(job));
        rig.wait_exit(job);
    }
    drop(leaked);
}

#[test]
fn progress_lines_are_reported() {
    for mut rig in rigs() {
        let script = "echo '1/4 one' >&3; echo garbage >&3; echo 2.5 >&3; printf '4/4 last' >&3";
        let job = rig.run(&["sh", "-c", script]);
        let mut told = Vec::new();
        let ending = loop {
            match rig.report() {
                Report::Progress { job: j, progress, total, message } => {
                    assert_eq!(j, job);
                    told.push((progress, total, message));
                }
                Report::Ended { ending, .. } => break ending,
                Report::Lingering { .. }
                | Report::Examined { .. }
                | Report::BornEnded { .. }
                | Report::Located { .. }
                | Report::Outlasting { .. }
                | Report::Line { .. }
                | Report::Surveyed { .. } => {
                    panic!("no lingering process, and no status was requested")
                }
            }
        };
        assert!(matches!(ending, Ending::Exited(_)));
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [(1.0, Some(4.0), text("one")), (2.5, None, None), (4.0, Some(4.0), text("last"))]
        );
    }
}

/// A command that cannot start reports the reason and affects no other job.
#[test]
fn commands_that_cannot_start_report_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (plain, script, bad) = (path("plain"), path("uninterpreted"), path("bad"));
    fs::write(&plain, "").unwrap();
    write_program(script.as_ref(), b"#!/no/such/interpreter\n");
    write_program(bad.as_ref(), b"\x7fELF\0no program");
    let long = "x".repeat(4_000_000);
    for mut rig in rigs() {
        let sleeper = rig.run(&["sleep", "1000"]);
        for (argv, cwd, want) in [
            (&["no-such-program-at-all"] as &[&str], None, "not found in the tool's PATH"),
            (&["/no/such/program"], None, "\"/no/such/program\": No such file"),
            (&[&plain], None, "check that it is an executable file"),
            (&[&script], None, "its interpreter does not"),
            (&["uninterpreted"], None, "its interpreter does not"),
            (&[&bad], None, "Exec format error"),
            (&["true", &long], None, "use stdin instead"),
            (&["true"], Some("/no/such/dir"), "the working directory \"/no/such/dir\": No such"),
            (&["true"], Some("/dev/null"), "the working directory \"/dev/null\": Not a dir"),
            (&[], None, "empty command"),
            (&["true", "a\0b"], None, "NUL byte"),
        ] {
            let mut launch = rig.command(argv);
            launch.cwd = cwd.map(Into::into);
            launch.env = vec![("PATH".into(), format!("/usr/bin:{}", dir.path().display()).into())];
            let job = rig.launch(launch);
            match rig.wait_ending(job) {
                Ending::NotStarted(reason) => assert!(reason.contains(want), "{reason}"),
                Ending::Exited(exit) => panic!("{argv:?} ran: {exit:?}"),
            }
        }
        rig.order(Order::Kill(sleeper));
        assert_eq!(rig.wait_exit(sleeper).signal, Some(9));
    }
}

/// A text without an interpreter line is a script of the shell, as for `execvp` and for every shell.
#[test]
fn script_without_an_interpreter_line_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (script, empty, bad) = (path("plain-script"), path("empty"), path("bad"));
    write_program(script.as_ref(), b"echo \"$0\" \"$#\" \"$1\" \"$2\"; exit 3\n");
    write_program(empty.as_ref(), b"");
    // The other user reads it as well.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    write_program(bad.as_ref(), b"echo \0 no text\n");
    for mut rig in rigs() {
        for argv in [&[&*script, "a b", ""], &["plain-script", "a b", ""]] {
            for user in [None, Some(1)] {
                if user.is_some() && !rustix::process::geteuid().is_root() {
                    continue;
                }
                let path = format!("/usr/bin:{}", dir.path().display());
                let env = vec![("PATH".into(), path.into())];
                let job = rig.command(argv);
                let job = rig.launch(Launch { user, env, ..job });
                let exit = rig.wait_exit(job);
                let told = (exit.stdout.text(), exit.code);
                assert_eq!(told, (format!("{script} 2 a b \n"), Some(3)), "{user:?}");
            }
        }
        let job = rig.run(&[&empty]);
        assert_eq!(rig.wait_exit(job).code, Some(0));
        let job = rig.run(&[&bad]);
        assert!(matches!(rig.wait_ending(job), Ending::NotStarted(_)));
    }
}

#[test]
fn orders_for_unknown_jobs_are_ignored() {
    for mut rig in rigs() {
        let job = rig.run(&["true"]);
        assert_eq!(rig.wait_exit(job).code, Some(0));
        for order in [Order::Terminate(job), Order::Kill(job), Order::Abandon(job)] {
            rig.order(order);
        }
        let next = rig.run(&["true"]);
        assert_eq!(rig.wait_exit(next).code, Some(0), "nothing else was reported");
    }
}

#[test]
fn abandoned_job_is_still_reported_once_it_ends() {
    for mut rig in rigs() {
        let marker = marker();
        let job = rig.shell("echo lost; echo 1 >&3; sleep $1", &marker);
        rig.wait_ready(job);
        rig.order(Order::Abandon(job));
        rig.order(Order::Kill(job));
        let exit = rig.wait_exit(job);
        assert_eq!((exit.stdout.text().as_str(), exit.stopped), ("", Stopped::Killed));
        assert_none_left(&marker);
    }
}

/// The supervisor leaves exit statuses of foreign children to the embedding program.
#[test]
fn children_of_an_embedding_program_are_not_reaped() {
    for mut rig in rigs() {
        let others: Vec<_> = (0..20)
            .map(|code| {
                let job = rig.run(&["true"]);
                let script = format!("exit {code}");
                (job, code, Command::new("sh").args(["-c", &script]).spawn().unwrap())
            })
            .collect();
        for _ in &others {
            assert!(matches!(rig.report(), Report::Ended { .. }));
        }
        for (_, code, mut child) in others {
            assert_eq!(child.wait().unwrap().code(), Some(code));
        }
    }
}

#[test]
fn five_hundred_jobs_leak_nothing() {
    for tier in TIERS {
        run_alone("tool::five_hundred_jobs", &format!("{tier:?}"));
    }
}

/// CAN-07: 500 jobs leave no descriptor, thread, zombie or control group, except the group kept for
/// the next job.
#[test]
#[ignore = "runs in a process of its own"]
fn five_hundred_jobs() {
    let Some(name) = argument() else { return };
    let tier = TIERS.into_iter().find(|tier| format!("{tier:?}") == name).unwrap();
    let Some(mut rig) = rig(tier) else { return };
    let count = |dir: &str| fs::read_dir(dir).unwrap().count();
    let warm = rig.run(&["true"]);
    rig.wait_exit(warm);
    let base = rig.base.clone();
    let groups = || {
        let entries = base.iter().flat_map(|base| fs::read_dir(base).unwrap().flatten());
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    let kept = usize::from(base.is_some());
    // The answer comes after the turn in which the job ended.
    rig.order(Order::Survey { ticket: 1, jobs: Vec::new() });
    assert!(matches!(rig.report(), Report::Surveyed { .. }));
    assert_eq!(groups(), kept, "one group is kept for the next job");
    let held = || (count("/proc/self/fd"), count("/proc/self/task"), children().len());
    let before = held();
    for round in 0..10 {
        let mut running = Vec::new();
        for n in 0..50 {
            let mut launch = match n % 5 {
                0 => rig.command(&["no-such-program"]),
                1 => rig.command(&["sleep", "1000"]),
                2 => rig.command(&["sh", "-c", "sleep 1000 & exit 0"]),
                _ => rig.command(&["sh", "-c", "echo hello; exit 1"]),
            };
            launch.stdin = (n % 2 == 0).then(|| vec![0; 100_000]);
            running.push(rig.launch(launch));
        }
        assert_eq!(count("/proc/self/task"), before.1, "one thread for all jobs");
        for job in &running {
            rig.order(Order::Kill(*job));
        }
        let mut ended = 0;
        while ended < running.len() {
            ended += usize::from(matches!(rig.report(), Report::Ended { .. }));
        }
        assert!(rig.reports.try_recv().is_err(), "one report per job, round {round}");
    }
    eventually("the number of descriptors is as before", || held() == before);
    eventually("no other group is left", || groups() == kept);
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert!(base.is_none_or(|base| !base.exists()));
    assert_eq!(children(), [] as [i32; 0]);
}

#[test]
fn thousand_commands_take_one_thread() {
    for tier in TIERS {
        run_alone("tool::thousand", &format!("{tier:?}"));
    }
}

/// A thousand commands take one thread, and killing one does not wait for the others.
#[test]
#[ignore = "runs in a process of its own"]
fn thousand() {
    let Some(name) = argument() else { return };
    let tier = TIERS.into_iter().find(|tier| format!("{tier:?}") == name).unwrap();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    // A tier needs at most seven descriptors per job.
    let jobs = limit.maximum.map_or(1000, |max| usize::try_from(max / 8).unwrap().min(1000));
    let Some(mut rig) = rig(tier) else { return };
    let marker = marker();
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    let start = Instant::now();
    let says_so = ["sh", "-c", "echo 1 >&3; exec sleep \"$0\"", &marker];
    let running: Vec<_> = (0..jobs).map(|_| rig.run(&says_so)).collect();
    // The bound is one of each report: how long all take depends on the machine.
    for _ in &running {
        let report = rig.report();
        assert!(matches!(report, Report::Progress { .. }), "{report:?}");
    }
    println!("{tier:?}: {jobs} started in {:?}", start.elapsed());
    assert_eq!(fs::read_dir("/proc/self/task").unwrap().count(), threads);
    let fds = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(fds <= jobs * 7 + 50, "{fds} descriptors");
    let start = Instant::now();
    let one = *running.get(jobs / 2).unwrap();
    rig.order(Order::Kill(one));
    assert_eq!(rig.wait_exit(one).signal, Some(9));
    println!("one job killed in {:?}", start.elapsed());
    let start = Instant::now();
    for job in running.iter().filter(|job| **job != one) {
        rig.order(Order::Terminate(*job));
    }
    for _ in 1..jobs {
        let report = rig.report();
        assert!(matches!(report, Report::Ended { .. }), "{report:?}");
    }
    println!("the others terminated in {:?}", start.elapsed());
    assert_none_left(&marker);
}
