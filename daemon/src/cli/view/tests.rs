//! Rendered lists.

use serde_json::json;

use super::layout::bytes;
use super::*;

fn status() -> Status {
    serde_json::from_value(json!({
        "server": "ceased", "version": "1", "identity": "uid:0", "operator": true,
        "running": 1, "queued": 1, "cancelling": 1, "connections": 2,
        "tasks": {"total": 3, "working": 1},
        "jobs": [
            {"job": 1, "tool": "count", "identity": "uid:7", "state": "running",
             "elapsedMs": 61_000, "progress": 3, "total": 10, "message": "counting"},
            {"job": 2, "tool": "echo", "identity": "uid:8", "state": "queued", "elapsedMs": 900},
            {"job": 3, "tool": "tree", "identity": "uid:7", "state": "cancelling",
             "elapsedMs": 5000, "reason": "requested", "said": "eno\u{1b}[2Jugh",
             "step": "SIGTERM", "cancellingMs": 1200}
        ],
        "taskList": [{"task": "517228dd-5c11", "tool": "count", "identity": "uid:7",
            "status": "working", "ageMs": 61_000, "ttlLeftMs": 3_539_000, "job": 1}],
        "peers": [{"connection": "c1024", "identity": "uid:7", "protocol": "2025-11-25",
            "elapsedMs": 90_061_000, "requests": 12, "inFlight": 1}],
        "host": {"pid": 42, "uptimeMs": 90_061_000, "survivors": 0,
            "cancelToDeath": {"count": 9, "longestMs": 1002.4, "p95Ms": 20.0},
            "receipts": [{"identity": "uid:7", "by": "uid:7", "job": 0, "tool": "tree",
                "why": "requested", "stage": "SIGKILL", "processes_ended": 6,
                "died_after_ms": 1002.4, "ended_ago_ms": 12_000, "survivors": 0}],
            "processes": {"3": [
                {"pid": 10, "parent": 1, "name": "sh"},
                {"pid": 12, "parent": 11, "name": "sleep"},
                {"pid": 11, "parent": 10, "name": "sh"},
                {"pid": 13, "parent": 10, "name": "sleep"}
            ]}}
    }))
    .expect("a status")
}

/// UPS-16: the receipt of a relayed request that its server was only told of claims no end.
#[test]
fn receipt_without_a_known_end_is_shown() {
    let receipt: Receipt = serde_json::from_value(json!({
        "identity": "uid:7", "by": "uid:7", "job": 5, "tool": "slow", "why": "requested",
        "stage": "told", "processes_ended": null, "died_after_ms": null, "ended_ago_ms": 1000,
        "survivors": null
    }))
    .expect("a receipt");
    let row = receipt.row(&Layout::of(&Status::default(), None));
    assert!(row.text.contains("its end is not known"), "{}", row.text);
    let details = receipt.details().join("\n");
    assert!(details.contains("processes ended: unknown"), "{details}");
    assert!(details.contains("the end of its work is not known"), "{details}");
}

/// CAN-13: cancelling jobs are first, with step, elapsed time and reason; ended cancels show the
/// remaining processes.
#[test]
fn list_shows_all_sections() {
    let mut status = status();
    status.name_users(|uid| (uid == 7).then(|| "ann".to_owned()));
    let rows = status.rows("", Sort::State, Trees::Whole, Some(80));
    let text: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    assert_eq!(
        text,
        [
            "     JOB TOOL         USER         STARTED  STATE",
            "       3 tree         ann         5.0s ago  cancelling 1.2s SIGTERM: eno\\u{1b}[2Jugh",
            "         └ 10 sh",
            "           ├ 11 sh",
            "           │ └ 12 sleep",
            "           └ 13 sleep",
            "       1 count        ann        1m01s ago  [###-------] 30% 3/10 counting",
            "       2 echo         uid:8       0.9s ago  queued: waiting for a worker",
            "  CEASED TOOL         USER           ENDED  CANCEL DONE: PROCESSES ENDED, LEFT",
            "       0 tree         ann          12s ago  6 ended, 0 left in 1.0s: requested",
            "    TASK TOOL         USER         CREATED  STATE, HOW LONG IT IS KEPT (TTL)",
            "517228dd count        ann        1m01s ago  working [###-------] 30%, ttl 58m59s",
            "    PEER PROTOCOL     USER           SINCE  REQUESTS",
            "   c1024 2025-11-25   ann        1d01h ago  12 made, 1 unanswered",
        ]
    );
    assert_eq!(rows[1].tone, Tone::Pending);
    // Within a terminal's width, except reasons, which are not limited.
    let mut short = rows.iter().filter(|row| row.tone != Tone::Pending);
    assert!(short.all(|row| row.text.chars().count() <= 80), "{rows:?}");
    let [_, busy, verdict] = status.summary();
    assert!(busy.1.starts_with("jobs: 1 running, 1 queued, 1 cancelling"), "{}", busy.1);
    assert_eq!(
        verdict,
        (Tone::Good, "cancels done: 9, 95 % within 20ms, slowest 1.0s; survivors 0".into())
    );
}

#[test]
fn list_is_filtered_and_sorted() {
    let ids = |filter, sort| -> Vec<Key> {
        status()
            .rows(filter, sort, Trees::Of(None), None)
            .into_iter()
            .filter_map(|row| row.key)
            .collect()
    };
    assert_eq!(ids("UID:8", Sort::State), [Key::Job(2)]);
    let age = ids("", Sort::Age);
    assert_eq!(age[..3], [Key::Job(1), Key::Job(2), Key::Job(3)]);
    assert_eq!(ids("", Sort::User)[2], Key::Job(2));
    let nothing = status().rows("nowhere", Sort::State, Trees::Whole, None);
    assert_eq!(nothing.len(), 2, "{nothing:?}");
}

/// A cyclic list of processes terminates.
#[test]
fn cyclic_processes_terminate() {
    let mut status = status();
    let circle = [(1, 2), (2, 1), (3, 3)];
    let processes =
        circle.map(|(pid, parent)| Process { pid, parent, name: "x".into(), memory_bytes: 0 });
    status.host.processes.insert(3, processes.to_vec());
    assert!(status.rows("", Sort::State, Trees::Whole, None).len() < 20);
}

#[test]
fn times_are_formatted() {
    for (millis, text) in [
        (0, "0.0s"),
        (9_999, "9.9s"),
        (59_999, "59s"),
        (60_000, "1m00s"),
        (3_600_000, "1h00m"),
        (90_000_000, "1d01h"),
    ] {
        assert_eq!(span(millis), text);
    }
}

/// An unselected job shows its first process and the number of others; one being cancelled shows
/// its remaining processes.
#[test]
fn trees_are_folded_unless_selected() {
    let mut status = status();
    let mut trees = |state: &str, selected: Option<&Key>| -> Vec<String> {
        status.jobs[2].state = state.into();
        let rows = status.rows("", Sort::State, Trees::Of(selected), None);
        rows.into_iter().filter(|row| row.text.contains('└')).map(|row| row.text).collect()
    };
    assert_eq!(trees("running", None), ["         └ 10 sh, and 3 more"]);
    assert_eq!(trees("running", Some(&Key::Job(3))).len(), 3);
    assert_eq!(trees("cancelling", None).len(), 3);
}

fn with_work() -> Status {
    let mut status = status();
    status.host.jobs = serde_json::from_value(json!({
        "1": {"arguments": "n=10 project=demo", "lastLine": "line\u{1b}[2J 3", "cpuMs": 61_000,
            "cpuPercent": 150, "memoryBytes": 47_185_920},
        "3": {"arguments": "t=abc"}
    }))
    .expect("work");
    status.join()
}

/// Arguments, last line, CPU and memory are on a line below the job on a narrow screen.
#[test]
fn narrow_screen_has_the_work_below_the_job() {
    let status = with_work();
    let lines = |trees, width| -> Vec<String> {
        let rows = status.rows("", Sort::State, trees, width);
        rows.into_iter().take(8).map(|row| row.text).collect()
    };
    let narrow = lines(Trees::Of(None), Some(80));
    assert_eq!(narrow[2], "         t=abc");
    assert_eq!(narrow[3], "         └ 10 sh", "the job is being cancelled");
    let whole = "         150% CPU, 45M  n=10 project=demo  | line\\u{1b}[2J 3";
    let rows = status.rows("", Sort::Age, Trees::Of(Some(&Key::Job(1))), Some(80));
    assert_eq!(rows[2].text, whole);
    let cut = status.rows("", Sort::Age, Trees::Of(None), Some(40));
    assert_eq!(cut[2].text, "         150% CPU, 45M  n=10 project=de…");
}

#[test]
fn wide_screen_has_the_work_in_columns() {
    let mut status = with_work();
    status.jobs[0].tool = "a_longer_name".into();
    let rows = status.rows("", Sort::Age, Trees::Of(None), Some(140));
    let text: Vec<&str> = rows.iter().take(3).map(|row| row.text.as_str()).collect();
    assert_eq!(
        text,
        [
            "     JOB TOOL          USER         STARTED    CPU MEMORY  ARGUMENTS          STATE",
            "       1 a_longer_name uid:7      1m01s ago   150%    45M  n=10 project=demo  \
             [###-------] 30% 3/10 counting | line\\u{1b}[2J 3",
            "       2 echo          uid:8       0.9s ago                                   queued: \
             waiting for a worker",
        ]
    );
}

#[test]
fn filter_finds_arguments() {
    let rows = with_work().rows("project=demo", Sort::State, Trees::Of(None), Some(80));
    assert_eq!(rows.into_iter().find_map(|row| row.key), Some(Key::Job(1)));
}

#[test]
fn details_of_a_job_have_its_work() {
    let details = with_work().details(&Key::Job(1));
    for line in [
        "arguments n=10 project=demo",
        "CPU time 1m01s, 150% of one CPU lately; memory 45M",
        "last line: line\u{1b}[2J 3",
    ] {
        assert!(details.iter().any(|it| it == line), "{line}: {details:?}");
    }
}

/// UPS-16: the receipt of a relayed request has the daemon's sentence about its end; an answer is
/// a good one, although no process is counted.
#[test]
fn receipt_of_a_relayed_request_has_its_sentence() {
    for (proof, survivors, tone) in
        [("answered", None, Tone::Good), ("quiet", Some(0), Tone::Good), ("told", None, Tone::Bad)]
    {
        let receipt: Receipt = serde_json::from_value(json!({"job": 1, "why": "requested",
            "processes_ended": 0, "died_after_ms": null, "survivors": survivors,
            "proof": proof, "end": "ended as a sentence"}))
        .expect("a receipt");
        let row = receipt.row(&Layout::of(&Status::default(), None));
        assert!(row.text.ends_with("ended as a sentence: requested"), "{}", row.text);
        assert_eq!(row.tone, tone, "{proof}");
        let details = receipt.details().join("\n");
        assert!(details.contains("ended as a sentence, 0.0s ago"), "{details}");
    }
}

/// A server that was only told of a cancel may have ended any number of processes.
#[test]
fn receipt_without_a_count_of_processes_is_read() {
    let receipt = json!({"tool": "t", "job": 1, "processes_ended": null, "survivors": null,
        "proof": "told", "reason": "no use"});
    let status: Status = serde_json::from_value(json!({"host": {"receipts": [receipt]}})).unwrap();
    let rows = status.rows("", Sort::State, Trees::Whole, None);
    assert!(rows.iter().any(|row| row.text.ends_with("its end is not known: no use")), "{rows:?}");
}

#[test]
fn bytes_are_short() {
    for (number, text) in [
        (0, "0K"),
        (1 << 10, "1K"),
        (1000 << 10, "1.0M"),
        (10 << 20, "10M"),
        (1536 << 20, "1.5G"),
        (u64::MAX, "16384P"),
    ] {
        assert_eq!(bytes(number), text);
    }
}
