//! `ceased watch`: prints a line for every change of one task, or of all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{io, mem};

use super::args::{DaemonArgs, WatchArgs};
use super::directory::{self, Directory};
use super::format::{self, clean};
use super::local_time::LocalTime;
use super::table::{has_colours, paint, tone_of};
use super::tasks::unknown;
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, discover};
use ceased_client::{Client, Error, Notification, Task, TaskStatus};
use ceased_core::rpc::error::code;
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
/// Columns of a terminal for the node of a task in a fleet.
const NODE_WIDTH: usize = 12;

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
        is_waiting: false,
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
    /// The daemon cannot tell of tasks, and the user knows.
    is_waiting: bool,
}

impl Watch<'_, '_> {
    fn one(&mut self, client: &mut Client, id: &str) -> Result<Exit, Failure> {
        loop {
            let task = self.ask(client, |client| client.task(id));
            let task = task.map_err(|error| unknown(error, id))?;
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
            let tasks = self.ask(client, Client::tasks)?;
            self.learn(client, &tasks)?;
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

    /// Asks again while the database of a fleet is away: a watch outlives its failover.
    fn ask<T>(
        &mut self,
        client: &mut Client,
        question: impl Fn(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match question(client) {
                Err(Error::Rpc(refused)) if refused.code == code::STORE_UNAVAILABLE => {
                    if !mem::replace(&mut self.is_waiting, true) {
                        self.io.say("the daemon cannot tell of tasks now; asking again");
                    }
                    client.idle(LOOK_EVERY, &mut |_| {})?;
                }
                answer => {
                    self.is_waiting = false;
                    return answer;
                }
            }
        }
    }

    /// Asks for the tools and nodes of tasks that were not there before.
    fn learn(&mut self, client: &mut Client, tasks: &[Task]) -> Result<(), Failure> {
        let is_new = |task: &Task| !self.known.knows(&task.id) && !self.seen.contains_key(&task.id);
        if tasks.iter().any(is_new) && directory::is_ceased(client) {
            let known = Directory::of(client, self.daemon)?;
            let before = mem::replace(&mut self.known, known);
            // A status shows the newest tasks alone.
            self.known.keep(&before, tasks.iter().map(|task| task.id.as_str()));
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
            let mut line = json!({"tool": tool, "task": task_value});
            if self.known.has_nodes() {
                line["node"] = self.known.node(&task.id).into();
            }
            format::json(&line, self.io)?;
            return self.io.out.flush();
        }
        let (time, state) = (self.local.short(&task.last_updated_at), task.status.to_string());
        if self.io.out_is_terminal {
            self.head(time.chars().count())?;
        }
        // Programs read lines without a heading and with whole ids; people read columns.
        let (length, tool, width) = match self.io.out_is_terminal {
            true => (8, TOOL_WIDTH, self.state_width()),
            false => (usize::MAX, 0, 0),
        };
        let id = clean(directory::shortened(&task.id, length));
        let name = clean(self.known.tool(&task.id));
        write!(self.io.out, "{time}  {id}  {name:<tool$}  ")?;
        let tone = tone_of(&state);
        let state = self.known.placed(&state, &task.id);
        paint(self.io.out, &clean(&state), tone, self.colours)?;
        let gap = width.saturating_sub(state.len()) + 2;
        let message = if message.is_empty() { message } else { format!("{:gap$}{message}", "") };
        writeln!(self.io.out, "{message}")?;
        self.io.out.flush()
    }

    fn state_width(&self) -> usize {
        STATE_WIDTH + if self.known.has_nodes() { NODE_WIDTH } else { 0 }
    }

    /// Prints the heading, once.
    fn head(&mut self, time: usize) -> io::Result<()> {
        if self.has_heading {
            return Ok(());
        }
        self.has_heading = true;
        let [tool, state] = [TOOL_WIDTH, self.state_width()];
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
