//! `ceased wrap --`, or `ceased connect --server NAME --`, in front of the commands of a host's file,
//! and its removal.

use super::binary::Binary;
use super::document::Format;
use super::edit;
use super::edit::Edit;
use super::entry::{Entry, Form, Kind, entries};
use super::error::HostFileError;
use super::splice::{unwrap, wrap};

/// Arguments in front of the command of a server that a wrapper of its own starts.
const WRAP: &[&str] = &["wrap", "--"];
/// Arguments in front of the command of an agent.
const WRAP_AGENT: &[&str] = &["wrap", "--acp", "--"];
/// Arguments in front of a command that the daemon starts. The name of the server follows, and the
/// command after `--`, where it has no effect but that `undo` finds it.
const CONNECT: [&str; 2] = ["connect", "--spawn"];

/// The reason for which a server by URL stays where nothing but a wrapper is put in front.
const REMOTE: &str =
    "it is reached over HTTP and starts no process; `--shared` moves it into the daemon";

/// Effect on one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// `ceased` is put in front of its command, or removed.
    Changed,
    /// It stays as it is.
    Left(String),
}

/// The edits of a file, and the effect on each entry.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) edits: Vec<Edit>,
    pub(crate) entries: Vec<(Entry, Change)>,
}

impl Outcome {
    /// The edited text.
    pub(crate) fn apply(&self, text: &str) -> String {
        edit::apply(text, &self.edits)
    }
}

/// Puts `ceased wrap --` in front of every command of a host's file.
///
/// # Errors
/// If the text is no file of a host.
pub(crate) fn adopt(text: &str, format: Format, binary: &Binary) -> Result<Outcome, HostFileError> {
    adopt_with(text, format, binary, |_, kind| {
        let words = match kind {
            Kind::Server => WRAP,
            Kind::Agent => WRAP_AGENT,
        };
        Ok(words.iter().map(|word| (*word).to_owned()).collect())
    })
}

/// Puts `ceased connect --server NAME --` in front of every command, and in the place of every URL, of
/// a host's file that has a name in `names`, which gives a name or the reason why there is none for each entry of the file.
/// `options` tell how the daemon is found.
///
/// # Errors
/// If the text is no file of a host.
pub(crate) fn share(
    text: &str,
    format: Format,
    binary: &Binary,
    names: &[Result<String, String>],
    options: &[String],
) -> Result<Outcome, HostFileError> {
    adopt_with(text, format, binary, |at, _| {
        let name = names.get(at).cloned();
        let name = name.unwrap_or_else(|| Err("it is not the daemon's".to_owned()))?;
        let all = CONNECT.map(str::to_owned).into_iter().chain(options.iter().cloned());
        Ok(all.chain(["--server".to_owned(), name, "--".to_owned()]).collect())
    })
}

/// Puts this program with arguments in front of every command; `leading` gives the arguments of the
/// entry at a position, or the reason why it stays.
fn adopt_with(
    text: &str,
    format: Format,
    binary: &Binary,
    leading: impl Fn(usize, Kind) -> Result<Vec<String>, String>,
) -> Result<Outcome, HostFileError> {
    outcome(text, format, |at, entry| match &entry.form {
        Form::Command(command) => wrap(text, format, command, binary, &leading(at, entry.kind)?),
        Form::Wrapped(_) | Form::Moved(..) => Err("it runs behind ceased already".to_owned()),
        Form::Remote(remote) => match &*leading(at, entry.kind)? {
            [first, ..] if first == WRAP[0] => Err(REMOTE.to_owned()),
            leading => remote.replace(text, format, binary, leading),
        },
        Form::Left(why) => Err(why.clone()),
    })
}

/// Removes `ceased wrap --` and `ceased connect --server NAME --`, with options, from every command of a host's file.
///
/// # Errors
/// If the text is no file of a host.
pub(crate) fn undo(text: &str, format: Format) -> Result<Outcome, HostFileError> {
    outcome(text, format, |_, entry| match &entry.form {
        Form::Wrapped(command) => Ok(unwrap(text, format, command)),
        Form::Moved(remote, command) => remote
            .restore(text, format, command)
            .ok_or_else(|| "its command is not as ceased wrote it".to_owned()),
        Form::Command(_) | Form::Remote(_) => Err("it does not run behind ceased".to_owned()),
        Form::Left(why) => Err(why.clone()),
    })
}

fn outcome(
    text: &str,
    format: Format,
    mut change: impl FnMut(usize, &Entry) -> Result<Vec<Edit>, String>,
) -> Result<Outcome, HostFileError> {
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for (at, entry) in entries(text, format)?.into_iter().enumerate() {
        let changed = match change(at, &entry) {
            Ok(new) => {
                edits.extend(new);
                Change::Changed
            }
            Err(why) => Change::Left(why),
        };
        changes.push((entry, changed));
    }
    edits.sort_by_key(|edit| edit.span.start);
    let outcome = Outcome { edits, entries: changes };
    verify(&outcome, text, format)?;
    Ok(outcome)
}

/// Checks that the edited text is read as the same entries, whose own commands are unchanged.
fn verify(outcome: &Outcome, text: &str, format: Format) -> Result<(), HostFileError> {
    if outcome.edits.is_empty() {
        return Ok(());
    }
    let refused = |entry: Option<&Entry>| {
        let line = entry.map_or(0, |entry| entry.line);
        let what = "the file is written in a way that cannot be edited safely; nothing is changed";
        let hint = "put the path of ceased as the command, and wrap, --, and the old command before \
                    the arguments";
        HostFileError::new(line, what, hint)
    };
    let new = entries(&outcome.apply(text), format).map_err(|_| refused(None))?;
    if new.len() != outcome.entries.len() {
        return Err(refused(None));
    }
    for ((old, change), new) in outcome.entries.iter().zip(&new) {
        let is_behind = |form: &Form| matches!(form, Form::Wrapped(_) | Form::Moved(..));
        let is_wrapped = is_behind(&new.form);
        let is_same_url = match (old.remote(), new.remote()) {
            (Some(old), Some(new)) => old.is_as(new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_kept = is_same_url
            && match (old.command(), new.command()) {
                (Some(old), Some(new)) => {
                    old.own_argv() == new.own_argv() && old.env == new.env && old.cwd == new.cwd
                }
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
        let was_wrapped = is_behind(&old.form);
        let is_changed = *change == Change::Changed;
        if old.name != new.name || !is_kept || is_wrapped != (was_wrapped ^ is_changed) {
            return Err(refused(Some(old)));
        }
    }
    Ok(())
}
