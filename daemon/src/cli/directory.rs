//! Names of jobs and tasks: ids by an unambiguous prefix, `job:N`, and the tool of each task.
//!
//! The tools of tasks are in `ceased/status`, a method of ceased. Another server is not asked for
//! it: its ids are taken as they are written.

use std::collections::BTreeMap;

use ceased_client::Client;

use super::args::DaemonArgs;
use super::view::{Job, Status};
use super::{Exit, Failure, ps};

/// Characters of an id that are shown, where they are enough.
const SHORT: usize = 8;
/// Characters of an id of ceased.
const WHOLE: usize = 36;
/// Candidates that are named for an ambiguous prefix.
const NAMED_MAX: usize = 5;

/// The meaning of an id on the command line.
pub(super) enum Named {
    /// A task, by its whole id.
    Task(String),
    /// A job that is no task's.
    Job(Box<Job>),
}

/// Jobs and tasks of the daemon; empty for another server.
#[derive(Default)]
pub(super) struct Directory {
    tools: BTreeMap<String, String>,
    /// Nodes of tasks; empty without a fleet.
    nodes: BTreeMap<String, String>,
    pub(super) status: Option<Status>,
}

impl Directory {
    /// Asks the daemon.
    pub(super) fn of(client: &mut Client, daemon: &DaemonArgs) -> Result<Self, Failure> {
        if !is_ceased(client) {
            return Ok(Self::default());
        }
        let raw = ps::status(client)?;
        let status = ps::read(&raw, daemon)?;
        let tools =
            status.task_list.iter().map(|task| (task.task.clone(), task.tool.clone())).collect();
        let own = status.host.fleet.as_ref().map(|fleet| fleet.node.as_str());
        let nodes = status.task_list.iter().filter_map(|task| {
            let node = task.node.as_deref().or(own)?;
            Some((task.task.clone(), node.to_owned()))
        });
        Ok(Self { tools, nodes: nodes.collect(), status: Some(status) })
    }

    /// Takes over the entries of these tasks that an older directory alone has.
    pub(super) fn keep<'a>(&mut self, older: &Self, tasks: impl Iterator<Item = &'a str>) {
        for task in tasks {
            if self.knows(task) {
                continue;
            }
            self.tools.extend(older.tools.get_key_value(task).map(owned));
            self.nodes.extend(older.nodes.get_key_value(task).map(owned));
        }
    }

    /// Whether the daemon is a node of a fleet.
    pub(super) fn has_nodes(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.host.fleet.is_some())
    }

    /// The node of a fleet that runs or ran a task, where it is known.
    pub(super) fn node(&self, task: &str) -> Option<&str> {
        self.nodes.get(task).map(String::as_str)
    }

    /// A state with the node of its task, where that is known.
    pub(super) fn placed(&self, state: &str, task: &str) -> String {
        self.node(task).map_or_else(|| state.to_owned(), |node| format!("{state} at {node}"))
    }

    /// The tool of a task; `-` where it is not known.
    pub(super) fn tool(&self, task: &str) -> &str {
        self.tools.get(task).map_or("-", String::as_str)
    }

    /// Whether the tool of a task is known.
    pub(super) fn knows(&self, task: &str) -> bool {
        self.tools.contains_key(task)
    }
}

fn owned((id, text): (&String, &String)) -> (String, String) {
    (id.clone(), text.clone())
}

/// Whether the server is a daemon of this program, by the name it gives itself.
pub(super) fn is_ceased(client: &Client) -> bool {
    client.server().info["name"] == "ceased"
}

/// The number of a job, written as `job:7` or `7`.
///
/// As many digits as a shown id has characters are the beginning of the id of a task.
pub(super) fn job_number(text: &str) -> Option<u64> {
    match text.strip_prefix("job:") {
        Some(number) => number.parse().ok(),
        None if text.len() < SHORT => text.parse().ok(),
        None => None,
    }
}

/// Finds a task by its id or the beginning of it, or a job as `job:N`.
///
/// # Errors
/// When the beginning is that of several tasks, or there is no such job.
pub(super) fn resolve(
    client: &mut Client,
    text: &str,
    daemon: &DaemonArgs,
) -> Result<Named, Failure> {
    if let Some(number) = text.strip_prefix("job:") {
        return job(client, number, daemon);
    }
    if text.len() >= WHOLE || text.is_empty() || !is_ceased(client) {
        return Ok(Named::Task(text.to_owned()));
    }
    let tasks = client.tasks()?;
    let matching: Vec<&str> =
        tasks.iter().map(|task| task.id.as_str()).filter(|id| id.starts_with(text)).collect();
    match matching.as_slice() {
        [id] => Ok(Named::Task((*id).to_owned())),
        // The daemon says that there is none.
        [] => Ok(Named::Task(text.to_owned())),
        several => {
            let named: Vec<&str> = several.iter().copied().take(NAMED_MAX).collect();
            let more = if several.len() > NAMED_MAX { ", …" } else { "" };
            let message = format!(
                "{text:?} is the beginning of {} tasks: {}{more}\nwrite more characters of the id",
                several.len(),
                named.join(", ")
            );
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

fn job(client: &mut Client, number: &str, daemon: &DaemonArgs) -> Result<Named, Failure> {
    let number: u64 = number.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("job:{number} is no job; write job:N, such as job:7"))
    })?;
    let status = Directory::of(client, daemon)?.status.unwrap_or_default();
    let task_of = status.task_list.iter().find(|task| task.job == Some(number));
    if let Some(task) = task_of {
        return Ok(Named::Task(task.task.clone()));
    }
    match status.jobs.into_iter().find(|job| job.job == number) {
        Some(Job { task: Some(task), .. }) => Ok(Named::Task(task)),
        Some(job) => Ok(Named::Job(Box::new(job))),
        None => Err(Failure::new(
            Exit::UnknownTask,
            format!("there is no job {number}; `ceased ps` lists the jobs that run"),
        )),
    }
}

/// The task that `text` names, for a command that works on tasks alone.
///
/// # Errors
/// As [`resolve`], and for a job that is no task's.
pub(super) fn task(
    client: &mut Client,
    text: &str,
    daemon: &DaemonArgs,
) -> Result<String, Failure> {
    match resolve(client, text, daemon)? {
        Named::Task(id) => Ok(id),
        Named::Job(job) => Err(Failure::new(
            Exit::Usage,
            format!(
                "job {} ({}) is a plain call: its result goes to its requestor; `ceased get job:{}` \
                 shows it",
                job.job, job.tool, job.job
            ),
        )),
    }
}

/// How many characters tell each of these ids from the others, at least [`SHORT`].
pub(super) fn short_length<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    let common = |pair: &[&str]| match pair {
        [a, b] => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count() + 1,
        _ => 0,
    };
    ids.windows(2).map(common).max().unwrap_or_default().max(SHORT)
}

/// The first characters of an id.
pub(super) fn shortened(id: &str, length: usize) -> &str {
    id.char_indices().nth(length).map_or(id, |(end, _)| id.get(..end).unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_told_apart() {
        assert_eq!(short_length(["aaaaaaaaaa1", "aaaaaaaaaa2", "b"].into_iter()), 11);
        assert_eq!(short_length(["a", "b"].into_iter()), SHORT);
        assert_eq!(shortened("0123456789", SHORT), "01234567");
        assert_eq!(shortened("é", SHORT), "é");
    }

    #[test]
    fn beginning_of_an_id_may_be_digits_alone() {
        for (text, number) in [
            ("7", Some(7)),
            ("1234567", Some(1_234_567)),
            ("job:12345678", Some(12_345_678)),
            ("12345678", None),
            ("12345678-1234", None),
            ("19c7f", None),
            ("job:x", None),
        ] {
            assert_eq!(job_number(text), number, "{text}");
        }
    }
}
