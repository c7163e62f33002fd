//! `ceased wrap --`, or `ceased connect --server NAME --`, in front of the commands of a host's file,
//! and its removal.

use std::path::{Path, PathBuf};

use super::edit;
use super::edit::Edit;
use super::entry::{CommandEntry, Entry, Form, Kind, entries};
use super::error::HostFileError;
use super::json::quoted;

/// Arguments in front of the command of a server that a wrapper of its own starts.
const WRAP: &[&str] = &["wrap", "--"];
/// Arguments in front of the command of an agent.
const WRAP_AGENT: &[&str] = &["wrap", "--acp", "--"];
/// Arguments in front of a command that the daemon starts. The name of the server follows, and the
/// command after `--`, where it has no effect but that `undo` finds it.
const CONNECT: [&str; 2] = ["connect", "--spawn"];

/// Path of this program as hosts are to start it: absolute, because hosts with a window often run
/// without the `PATH` of a shell.
#[derive(Debug, Clone)]
pub(crate) struct Binary(String);

impl Binary {
    /// A program at this path.
    #[cfg(test)]
    pub(super) fn at(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// This program. A name in `PATH` that leads to it is preferred, because it outlives an update
    /// of the program.
    ///
    /// # Errors
    /// If the path is unknown or not UTF-8.
    pub(crate) fn of_process() -> Result<Self, String> {
        let unknown = |why: std::io::Error| format!("the path of this program is unknown: {why}");
        let program = std::env::current_exe().map_err(unknown)?;
        let is_same = |path: &Path| path.canonicalize().is_ok_and(|found| found == program);
        let listed = std::env::var_os("PATH").unwrap_or_default();
        let listed = std::env::split_paths(&listed).filter(|dir| dir.is_absolute());
        let named: Option<PathBuf> =
            listed.map(|dir| dir.join("ceased")).find(|path| is_same(path));
        match named.unwrap_or(program).into_os_string().into_string() {
            Ok(path) if path.ends_with("/ceased") => Ok(Self(path)),
            Ok(path) => Err(format!("the name of this program, {path}, is not ceased")),
            Err(path) => Err(format!("the path of this program is not UTF-8: {}", path.display())),
        }
    }
}

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
pub(crate) fn adopt(text: &str, binary: &Binary) -> Result<Outcome, HostFileError> {
    adopt_with(text, binary, |_, kind| {
        let words = match kind {
            Kind::Server => WRAP,
            Kind::Agent => WRAP_AGENT,
        };
        Ok(words.iter().map(|word| (*word).to_owned()).collect())
    })
}

/// Puts `ceased connect --server NAME --` in front of every command of a host's file that has a name
/// in `names`, which gives a name or the reason why there is none for each entry of the file.
/// `options` tell how the daemon is found.
///
/// # Errors
/// If the text is no file of a host.
pub(crate) fn share(
    text: &str,
    binary: &Binary,
    names: &[Result<String, String>],
    options: &[String],
) -> Result<Outcome, HostFileError> {
    adopt_with(text, binary, |at, _| {
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
    binary: &Binary,
    leading: impl Fn(usize, Kind) -> Result<Vec<String>, String>,
) -> Result<Outcome, HostFileError> {
    outcome(text, |at, kind, form| match form {
        Form::Command(entry) => Ok(wrap(text, entry, binary, &leading(at, kind)?)),
        Form::Wrapped(_) => Err("it runs behind ceased already".to_owned()),
        Form::Left(why) => Err(why.clone()),
    })
}

/// Removes `ceased wrap --` and `ceased connect --server NAME --`, with options, from every command of a host's file.
///
/// # Errors
/// If the text is no file of a host.
pub(crate) fn undo(text: &str) -> Result<Outcome, HostFileError> {
    outcome(text, |_, _, form| match form {
        Form::Wrapped(entry) => Ok(unwrap(text, entry)),
        Form::Command(_) => Err("it does not run behind ceased".to_owned()),
        Form::Left(why) => Err(why.clone()),
    })
}

fn outcome(
    text: &str,
    mut change: impl FnMut(usize, Kind, &Form) -> Result<Vec<Edit>, String>,
) -> Result<Outcome, HostFileError> {
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for (at, entry) in entries(text)?.into_iter().enumerate() {
        let changed = match change(at, entry.kind, &entry.form) {
            Ok(new) => {
                edits.extend(new);
                Change::Changed
            }
            Err(why) => Change::Left(why),
        };
        changes.push((entry, changed));
    }
    edits.sort_by_key(|edit| edit.span.start);
    Ok(Outcome { edits, entries: changes })
}

fn wrap(text: &str, entry: &CommandEntry, binary: &Binary, leading: &[String]) -> Vec<Edit> {
    // The bytes of the command move, so that `unwrap` restores its very spelling.
    let command = text.get(entry.command.span.clone()).unwrap_or_default();
    let leading: Vec<String> = leading.iter().map(|text| quoted(text)).collect();
    let program = Edit::new(entry.command.span.clone(), quoted(&binary.0));
    let args = match &entry.args {
        None => {
            // Written without spaces, which tells `unwrap` that there was no member.
            let new = format!(", \"args\": [{},{command}]", leading.join(","));
            Edit::new(entry.member.end..entry.member.end, new)
        }
        Some(args) => match args.items.first() {
            Some(first) => {
                let at = first.span.start;
                Edit::new(at..at, format!("{}, {command}, ", leading.join(", ")))
            }
            None => {
                let at = args.span.start + 1;
                Edit::new(at..at, format!("{}, {command}", leading.join(", ")))
            }
        },
    };
    vec![program, args]
}

fn unwrap(text: &str, entry: &CommandEntry) -> Vec<Edit> {
    let (Some(dashes), Some(args)) = (entry.wrapping(), &entry.args) else { return Vec::new() };
    let [first, .., last] = args.items.as_slice() else { return Vec::new() };
    let Some(command) = args.items.get(dashes + 1) else { return Vec::new() };
    let written = |span: std::ops::Range<usize>| text.get(span).unwrap_or_default();
    let program = Edit::new(entry.command.span.clone(), written(command.span.clone()));
    let rest = args.items.get(dashes + 2);
    let mut pairs = args.items.iter().zip(args.items.iter().skip(1));
    let is_ours = rest.is_none()
        && pairs.all(|(one, next)| written(one.span.end..next.span.start) == ",")
        && written(entry.member.end..args.member.start) == ", ";
    let removed = match rest {
        _ if is_ours => entry.member.end..args.member.end,
        Some(rest) => first.span.start..rest.span.start,
        // A trailing comma goes with the last argument.
        None if written(last.span.end..args.span.end).contains(',') => {
            args.span.start + 1..args.span.end - 1
        }
        None => first.span.start..last.span.end,
    };
    vec![program, Edit::new(removed, "")]
}
