//! `ceased watch`: prints a line for every change of one task, or of all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use super::args::{DaemonArgs, WatchArgs};
use super::directory::{self, Directory};
use super::format::clean;
use super::local_time::LocalTime;
use super::table::{has_colours, paint, tone_of};
use super::tasks::unknown;
use super::{Backend, Exit, Failure, Io, discover};
use ceased_client::{Client, Notification, Task, TaskStatus};

/// Default polling interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum polling interval, whatever the server requests.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Maximum polling interval, the longest that a ceased daemon requests: servers need not announce
/// the end of a task.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(3_600);

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
                writeln!(self.io.out, "{} no longer kept", clean(&id))?;
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
        // A line per change is read by programs, too: they get whole ids.
        let length = if self.io.out_is_terminal { 8 } else { usize::MAX };
        let (id, tool) = (directory::shortened(&task.id, length), self.known.tool(&task.id));
        write!(
            self.io.out,
            "{}  {}  {}  ",
            self.local.short(&task.last_updated_at),
            clean(id),
            clean(tool)
        )?;
        let state = task.status.to_string();
        paint(self.io.out, &state, tone_of(&state), self.colours)?;
        let gap = if message.is_empty() { "" } else { "  " };
        writeln!(self.io.out, "{gap}{message}")?;
        self.io.out.flush()
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
