//! Output of jobs, while they run and for a time afterwards.
//!
//! Bounded by identity and in all: the oldest output of ended jobs is forgotten first. Read by the
//! job's owner alone, and by operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{OutputOf, OutputQuery, OutputRequest, Viewer};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, TaskId};
use ceased_core::time::Instant;
use serde_json::{Value, json};

use crate::observability::job_status::LINE_CHARS_MAX;
use crate::tools::command_result::output_uri;
use ceased_process::plain_text::plain_text;
use ceased_process::{Captured, SharedOutput, Stream};

/// Bytes of each stream in one answer to a reader that follows.
const PART_BYTES_MAX: usize = 64 * 1024;
/// Outputs that one list names at most: the latest.
const LISTED_MAX: usize = 100;
/// Memory of a kept output beside its bytes.
const ENTRY_BYTES: usize = 512;

/// How much of the output of ended jobs is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLimits {
    pub(crate) per_identity: usize,
    pub(crate) all: usize,
    pub(crate) span: Duration,
}

/// The output of one job.
#[derive(Debug)]
struct JobOutput {
    owner: Identity,
    conn: ConnId,
    task: Option<TaskId>,
    tool: Arc<str>,
    output: SharedOutput,
    /// Standard error is within standard output.
    merged: bool,
    /// Times of its end and removal, and its size.
    ended: Option<Kept>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    until: Instant,
    bytes: usize,
}

/// The output of every job that runs, and of those that ended lately.
#[derive(Debug, Default)]
pub(crate) struct JobOutputs {
    jobs: BTreeMap<JobId, JobOutput>,
    /// Bytes of ended jobs, by identity.
    bytes: BTreeMap<Identity, usize>,
    all_bytes: usize,
}

/// A job that begins to print.
pub(crate) struct Begun {
    pub(crate) job: JobId,
    pub(crate) owner: Identity,
    pub(crate) conn: ConnId,
    pub(crate) task: Option<TaskId>,
    pub(crate) tool: Arc<str>,
    pub(crate) output: SharedOutput,
    pub(crate) merged: bool,
}

impl JobOutputs {
    pub(crate) fn begin(&mut self, begun: Begun) {
        let Begun { job, owner, conn, task, tool, output, merged } = begun;
        let entry = JobOutput { owner, conn, task, tool, output, merged, ended: None };
        self.jobs.insert(job, entry);
    }

    /// The job has ended: its output is kept for a time, within the limits.
    pub(crate) fn end(
        &mut self,
        job: JobId,
        task: Option<TaskId>,
        now: Instant,
        limits: OutputLimits,
    ) {
        self.prune(now);
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| entry.ended.is_none()) else {
            return;
        };
        entry.task = entry.task.or(task);
        let bytes = entry.output.len() + ENTRY_BYTES;
        entry.ended = Some(Kept { until: now + limits.span, bytes });
        let owner = entry.owner.clone();
        *self.bytes.entry(owner.clone()).or_default() += bytes;
        self.all_bytes += bytes;
        while self.bytes.get(&owner).is_some_and(|bytes| *bytes > limits.per_identity) {
            if !self.forget_oldest(|entry| entry.owner == owner) {
                break;
            }
        }
        while self.all_bytes > limits.all && self.forget_oldest(|_| true) {}
    }

    fn forget_oldest(&mut self, of: impl Fn(&JobOutput) -> bool) -> bool {
        let ended = |entry: &JobOutput| entry.ended.is_some() && of(entry);
        let oldest = self.jobs.iter().find(|(_, entry)| ended(entry)).map(|(job, _)| *job);
        oldest.is_some_and(|job| self.forget(job))
    }

    fn forget(&mut self, job: JobId) -> bool {
        let Some(entry) = self.jobs.remove(&job) else { return false };
        if let Some(Kept { bytes, .. }) = entry.ended {
            self.all_bytes -= bytes;
            if let Some(own) = self.bytes.get_mut(&entry.owner) {
                *own -= bytes;
                if *own == 0 {
                    self.bytes.remove(&entry.owner);
                }
            }
        }
        true
    }

    /// Removes outputs that were kept long enough.
    pub(crate) fn prune(&mut self, now: Instant) {
        let over = |entry: &JobOutput| entry.ended.is_some_and(|kept| kept.until <= now);
        let over: Vec<JobId> =
            self.jobs.iter().filter(|(_, entry)| over(entry)).map(|(job, _)| *job).collect();
        for job in over {
            self.forget(job);
        }
    }

    /// The requested output, if it is there and the viewer may read it.
    fn find(&self, of: OutputOf, viewer: &Viewer) -> Option<(JobId, &JobOutput)> {
        let job = of.job.or_else(|| {
            let is = |entry: &JobOutput| entry.task.is_some() && entry.task == of.task;
            self.jobs.iter().rfind(|(_, entry)| is(entry)).map(|(job, _)| *job)
        })?;
        let entry = self.jobs.get(&job)?;
        // The id of a task cannot be guessed, the number of a job can.
        let by_task = of.task.is_some();
        may_read(entry, viewer, by_task).then_some((job, entry))
    }

    /// The last line of a job that runs.
    pub(crate) fn last_line(&self, job: JobId) -> Option<String> {
        let entry = self.jobs.get(&job).filter(|entry| entry.ended.is_none())?;
        entry.output.last_line(LINE_CHARS_MAX)
    }

    pub(crate) fn read(&self, query: &OutputQuery) -> Option<Value> {
        match query.request {
            OutputRequest::List => Some(self.list(&query.viewer)),
            OutputRequest::Whole(of) => {
                let (_, entry) = self.find(of, &query.viewer)?;
                Some(Value::String(whole(&entry.output)))
            }
            OutputRequest::Part { of, from: [stdout, stderr], since } => {
                let (job, entry) = self.find(of, &query.viewer)?;
                let from = |stream, from| since_place(&entry.output, stream, from, since);
                let from = [from(Stream::Stdout, stdout), from(Stream::Stderr, stderr)];
                Some(part(job, entry, from))
            }
            // Kept with the servers.
            OutputRequest::Server { .. } | OutputRequest::Login { .. } | OutputRequest::View => {
                None
            }
        }
    }

    fn list(&self, viewer: &Viewer) -> Value {
        let own = self.jobs.iter().rev().filter(|(_, entry)| may_read(entry, viewer, false));
        own.take(LISTED_MAX)
            .map(|(job, entry)| {
                let state = if entry.ended.is_some() { "ended" } else { "running" };
                json!({
                    "uri": output_uri(*job),
                    "name": format!("{} job:{}", entry.tool, job.get()),
                    "description": format!("Output of {}, {state}", entry.tool),
                    "mimeType": "text/plain",
                    "size": entry.output.len(),
                })
            })
            .collect()
    }
}

/// The place from which a stream is read: not before the given one, nor before bytes that were
/// printed within a time.
pub(super) fn since_place(
    output: &SharedOutput,
    stream: Stream,
    from: u64,
    since: Option<Duration>,
) -> u64 {
    let time = since.and_then(|since| std::time::Instant::now().checked_sub(since));
    time.map_or(from, |time| from.max(output.since(stream, time)))
}

/// OUT-01: the owner alone, and operators. Anonymous peers share an identity, so each may read the
/// output of jobs of its own connection, and of tasks whose id it knows.
fn may_read(entry: &JobOutput, viewer: &Viewer, by_task: bool) -> bool {
    match &viewer.identity {
        _ if viewer.sees_all => true,
        Identity::Anonymous => {
            entry.owner == Identity::Anonymous && (by_task || entry.conn == viewer.conn)
        }
        own @ (Identity::User(_) | Identity::Token(_) | Identity::Subject(_)) => {
            entry.owner == *own
        }
    }
}

/// Everything that is kept, as text.
fn whole(output: &SharedOutput) -> String {
    let text = |captured: &Captured| {
        let (head, tail) = captured.whole_characters();
        match captured.cut() {
            0 => plain_text(&[head, tail].concat()),
            cut => format!("{}\n[… {cut} bytes cut …]\n{}", plain_text(head), plain_text(tail)),
        }
    };
    let mut all = text(&output.captured(Stream::Stdout));
    let stderr = text(&output.captured(Stream::Stderr));
    if !stderr.is_empty() {
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
        all.push_str(&stderr);
    }
    all
}

/// The part that a following reader has not read yet.
fn part(job: JobId, entry: &JobOutput, [stdout, stderr]: [u64; 2]) -> Value {
    // Looked at first: an ended job prints nothing more.
    let ended = entry.ended.is_some();
    let of = |stream, from| {
        let captured = entry.output.captured(stream);
        let (start, bytes) = captured.from(from, PART_BYTES_MAX);
        let is_last = start + bytes.len() as u64 == captured.total();
        let bytes = match ended && is_last {
            true => bytes,
            // The rest of a character may be on its way.
            false => Captured::whole_at_end(bytes),
        };
        json!({
            "from": start,
            "next": start + bytes.len() as u64,
            "total": captured.total(),
            "text": String::from_utf8_lossy(bytes),
        })
    };
    json!({
        "job": job.get(),
        "task": entry.task.map(|task| task.to_string()),
        "tool": *entry.tool,
        "ended": ended,
        "merged": entry.merged,
        "stdout": of(Stream::Stdout, stdout),
        "stderr": of(Stream::Stderr, stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ceased_core::identity::Rights;

    const ANN: Identity = Identity::User(1);
    const BOB: Identity = Identity::User(2);

    fn limits(per_identity: usize, all: usize) -> OutputLimits {
        let entry = ENTRY_BYTES;
        OutputLimits {
            per_identity: per_identity * (entry + 10),
            all: all * (entry + 10),
            span: Duration::from_secs(60),
        }
    }

    fn run(outputs: &mut JobOutputs, number: u64, owner: &Identity, at: u64, limits: OutputLimits) {
        let output = SharedOutput::holding(b"0123456789");
        let (job, conn) = (JobId::new(number), ConnId::new(number));
        let (owner, tool) = (owner.clone(), "t".into());
        let begun = Begun { job, owner, conn, task: None, tool, output, merged: false };
        outputs.begin(begun);
        outputs.end(job, None, Instant::from_nanos(at), limits);
    }

    fn viewer(identity: Identity, conn: u64) -> Viewer {
        Viewer { identity, rights: Rights::Full, conn: ConnId::new(conn), sees_all: false }
    }

    fn sees(outputs: &JobOutputs, job: u64, viewer: &Viewer) -> bool {
        outputs.find(OutputOf { job: Some(JobId::new(job)), task: None }, viewer).is_some()
    }

    /// OUT-02
    #[test]
    fn oldest_output_is_forgotten_first() {
        let mut outputs = JobOutputs::default();
        let few = limits(2, 3);
        (1..=3).for_each(|job| run(&mut outputs, job, &ANN, job, few));
        let ann = viewer(ANN, 9);
        assert_eq!([1, 2, 3].map(|job| sees(&outputs, job, &ann)), [false, true, true]);
        run(&mut outputs, 4, &BOB, 4, few);
        run(&mut outputs, 5, &BOB, 5, few);
        assert_eq!([2, 3].map(|job| sees(&outputs, job, &ann)), [false, true], "three in all");
        outputs.prune(Instant::from_nanos(60_000_000_003));
        assert!(!sees(&outputs, 3, &ann) && sees(&outputs, 4, &viewer(BOB, 9)));
        outputs.prune(Instant::from_nanos(90_000_000_000));
        assert!(outputs.jobs.is_empty() && outputs.bytes.is_empty() && outputs.all_bytes == 0);
    }

    /// OUT-01
    #[test]
    fn output_is_read_by_its_owner_and_by_operators() {
        let mut outputs = JobOutputs::default();
        run(&mut outputs, 1, &ANN, 1, limits(9, 9));
        run(&mut outputs, 2, &Identity::Anonymous, 2, limits(9, 9));
        assert!(sees(&outputs, 1, &viewer(ANN, 5)));
        assert!(!sees(&outputs, 1, &viewer(BOB, 1)));
        assert!(!sees(&outputs, 1, &viewer(Identity::Anonymous, 1)));
        assert!(sees(&outputs, 1, &Viewer { sees_all: true, ..viewer(BOB, 1) }));
        assert!(sees(&outputs, 2, &viewer(Identity::Anonymous, 2)));
        assert!(!sees(&outputs, 2, &viewer(Identity::Anonymous, 3)), "another anonymous peer");
        assert!(!sees(&outputs, 2, &viewer(ANN, 2)));
        let named = |viewer| outputs.list(&viewer).as_array().map(Vec::len);
        assert_eq!(named(viewer(ANN, 5)), Some(1));
        assert_eq!(named(viewer(BOB, 5)), Some(0));
    }
}
