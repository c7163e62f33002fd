//! `ceased watch`: prints a line for every change of one task, or of all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use super::args::{DaemonArgs, WatchArgs};
use super::directory::{self, Directory};
use super::format::{self, clean};
use super::local_time::LocalTime;
use super::table::{has_colours, paint, tone_of};
use super::tasks::unknown;
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, discover};
use ceased_client::{Client, Notification, Task, TaskStatus};
use serde_json::{Value, json};

/// Default polling interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum polling interval, whatever the server requests.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Maximum polling interval, the longest that a ceased daemon requests: servers need not announce
/// the end of a task.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(3_600);

/// Columns of a terminal for the name of the tool, and for the longest state.
const TOOL_WIDTH: usize = 12;
const STATE_WIDTH: usize = 14;

/// The printed part of a task.
type Seen = (TaskStatus, Option<String>);

/// Runs the command.
pub(super) fn watch(
    args: &WatchArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let id = args.id.as_deref().map(|id| directory::task(client, id, &args.daemon)).transpose()?;
    let mut watch = Watch {
        colours: has_colours(io),
        json: args.json,
        has_heading: false,
        io,
        daemon: &args.daemon,
        known: Directory::of(client, &args.daemon)?,
        local: LocalTime::of_user(),
        seen: BTreeMap::new(),
    };
    let watched = match &id {
        Some(id) => watch.one(client, id),
        None => watch.all(client),
    };
    match watched {
        Err(Failure { exit: Exit::Cancelled, .. }) => Ok(Exit::Cancelled),
        watched => watched,
    }
}

struct Watch<'a, 'io> {
    io: &'a mut Io<'io>,
    colours: bool,
    json: bool,
    /// The heading is printed.
    has_heading: bool,
    daemon: &'a DaemonArgs,
    known: Directory,
    local: LocalTime,
    seen: BTreeMap<String, Seen>,
}

impl Watch<'_, '_> {
    fn one(&mut self, client: &mut Client, id: &str) -> Result<Exit, Failure> {
        loop {
            let task = client.task(id).map_err(|error| unknown(error, id))?;
            self.show(&task)?;
            if task.status.is_terminal() {
                return Ok(Exit::Done);
            }
            self.idle(client, interval(task.poll_interval), Some(id))?;
            if self.seen.get(id).is_some_and(|(status, _)| status.is_terminal()) {
                return Ok(Exit::Done);
            }
        }
    }

    fn all(&mut self, client: &mut Client) -> Result<Exit, Failure> {
        let mut is_first = true;
        loop {
            let tasks = client.tasks()?;
            self.learn(client, tasks.iter())?;
            for task in &tasks {
                // A task that had ended before is no change.
                if is_first && task.status.is_terminal() {
                    self.seen.insert(task.id.clone(), seen(task));
                } else {
                    self.show(task)?;
                }
            }
            is_first = false;
            let kept: BTreeSet<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
            let is_gone = |id: &&String| !kept.contains(id.as_str());
            let gone: Vec<String> = self.seen.keys().filter(is_gone).cloned().collect();
            for id in gone {
                if self.json {
                    format::json(&json!({"taskId": id, "kept": false}), self.io)?;
                    self.io.out.flush()?;
                } else {
                    writeln!(self.io.out, "{} no longer kept", clean(&id))?;
                }
                self.seen.remove(&id);
            }
            let soonest = tasks
                .iter()
                .filter(|task| !task.status.is_terminal())
                .filter_map(|task| task.poll_interval)
                .min();
            self.idle(client, interval(soonest), None)?;
        }
    }

    /// Asks for the tools of tasks that were not there before.
    fn learn<'t>(
        &mut self,
        client: &mut Client,
        mut tasks: impl Iterator<Item = &'t Task>,
    ) -> Result<(), Failure> {
        let is_new = |task: &Task| !self.known.knows(&task.id) && !self.seen.contains_key(&task.id);
        if tasks.any(is_new) && directory::is_ceased(client) {
            self.known = Directory::of(client, self.daemon)?;
        }
        Ok(())
    }

    /// Prints the task if it is not as it was.
    fn show(&mut self, task: &Task) -> io::Result<()> {
        let now = seen(task);
        if self.seen.get(&task.id) == Some(&now) {
            return Ok(());
        }
        let message = clean(task.message.as_deref().unwrap_or_default()).into_owned();
        self.seen.insert(task.id.clone(), now);
        if self.json {
            let task_value: Value = serde_json::from_str(task.raw.get()).unwrap_or_default();
            let tool = self.known.knows(&task.id).then(|| self.known.tool(&task.id));
            format::json(&json!({"tool": tool, "task": task_value}), self.io)?;
            return self.io.out.flush();
        }
        let (time, state) = (self.local.short(&task.last_updated_at), task.status.to_string());
        if self.io.out_is_terminal {
            self.head(time.chars().count())?;
        }
        // Programs read lines without a heading and with whole ids; people read columns.
        let (length, tool, width) = match self.io.out_is_terminal {
            true => (8, TOOL_WIDTH, STATE_WIDTH),
            false => (usize::MAX, 0, 0),
        };
        let id = clean(directory::shortened(&task.id, length));
        let name = clean(self.known.tool(&task.id));
        write!(self.io.out, "{time}  {id}  {name:<tool$}  ")?;
        paint(self.io.out, &state, tone_of(&state), self.colours)?;
        let gap = width.saturating_sub(state.len()) + 2;
        let message = if message.is_empty() { message } else { format!("{:gap$}{message}", "") };
        writeln!(self.io.out, "{message}")?;
        self.io.out.flush()
    }

    /// Prints the heading, once.
    fn head(&mut self, time: usize) -> io::Result<()> {
        if self.has_heading {
            return Ok(());
        }
        self.has_heading = true;
        let [tool, state] = [TOOL_WIDTH, STATE_WIDTH];
        let (names, last) = (["TIME", "ID", "TOOL", "STATE"], "MESSAGE");
        let [when, id, what, how] = names;
        let heading = format!("{when:<time$}  {id:<8}  {what:<tool$}  {how:<state$}  {last}");
        paint(self.io.out, &heading, Tone::Heading, self.colours)?;
        writeln!(self.io.out)
    }

    /// Waits for the next poll. A notification contains the same data as a poll, so its task is
    /// shown; polling continues, since notifications are optional.
    fn idle(
        &mut self,
        client: &mut Client,
        time: Duration,
        only: Option<&str>,
    ) -> Result<(), Failure> {
        let mut wrote = Ok(());
        let idled = client.idle(time, &mut |note| {
            if let (Notification::Task(task), Ok(())) = (note, &wrote)
                && only.is_none_or(|id| id == task.id)
            {
                wrote = self.show(task);
            }
        });
        wrote?;
        idled.map_err(Failure::from)
    }
}

/// The fields that decide whether a task has changed.
fn seen(task: &Task) -> Seen {
    (task.status, task.message.clone())
}

fn interval(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(LOOK_EVERY).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_interval_of_the_server_is_clamped() {
        assert_eq!(interval(None), LOOK_EVERY);
        assert_eq!(interval(Some(Duration::ZERO)), LOOK_AT_MOST_EVERY);
        assert_eq!(interval(Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert_eq!(interval(Some(Duration::from_millis(u64::MAX))), Duration::from_secs(3_600));
    }
}
