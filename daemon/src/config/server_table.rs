//! `[[server]]` and `[servers]` as written, checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use ceased_core::limits::ServerPlaces;
use ceased_core::tool::TaskSupport;
use ceased_core::upstream::server::{NameFilter, OnIgnoredCancel, Pin, Share, StartWhen};
use ceased_core::upstream::spoken::Revision;

use super::check::{Checker, Key};
use super::defaults::{STARTS_MAX, most_of, start_at_once_default};
use super::entry::Entry;
use super::error::line_of;
use super::forms::{Heartbeat, TimeOrOff};
use super::json::Ordered;
use super::kinds::{Choice, Count, HOUR, Kind, MS, Perhaps, Time, YEAR};
use super::launch::Launch;
use super::remote_server::RemoteServer;
use super::server::{SERVER_NAME_MAX, Server, clashes};
use super::server_url;
use super::table::Table;
use super::values::Text;
use super::{Daemon, RunAs, Tool, identities, raw};

pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_EXIT: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(600);
pub(super) const GRACE: Duration = Duration::from_secs(2);
pub(super) const GRACE_MAX: Duration = Duration::from_secs(600);
pub(super) const DRAIN: Duration = Duration::from_secs(30);
/// Instances of a server: each is a process tree.
const INSTANCES: usize = 16;
pub(super) const INSTANCES_MAX: u64 = 4096;
const CALLS_MAX: u64 = 65_536;

/// `[servers]`
pub(super) fn start_at_once(table: &mut Table<'_, '_>) -> usize {
    let range = Count(1..=STARTS_MAX as u64);
    let starts = range.read(table, "start_at_once", start_at_once_default());
    table.end();
    starts
}

/// All servers of the file.
pub(super) fn servers(
    raw: Vec<(usize, raw::Server)>,
    tools: &[Tool],
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Vec<Server> {
    let (mut servers, mut places) = (Vec::new(), Vec::new());
    for (at, raw) in raw {
        let place = raw.name.at().unwrap_or(at);
        if let Some(server) = server(at, &raw, daemon, check) {
            servers.push(server);
            places.push(place);
        }
    }
    for clash in clashes(&servers, tools) {
        let [first, second] =
            [clash.first, clash.second].map(|at| places.get(at).copied().unwrap_or_default());
        let first = line_of(check.text, first);
        check.problem(second, clash.what, format!("the first is in line {first}; {}", clash.hint));
    }
    servers
}

fn server(
    at: usize,
    raw: &raw::Server,
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Option<Server> {
    let name = name(at, &raw.name, check);
    let (command, remote, revision) = target(at, raw, check);
    let launch = Launch::of(&raw.environment, &raw.confinement, daemon.isolation, check);
    let share = raw.share.or(Share::Connection, &SHARE, check);
    check_user(raw, launch.run_as, share, check);
    let instances = Count(1..=INSTANCES_MAX);
    let max_instances = raw.max_instances.or(INSTANCES, &instances, check);
    let own = &raw.max_instances_per_identity;
    let running = raw.max_running.read(&Count(1..=CALLS_MAX), check);
    let own_running = raw.max_running_per_identity.read(&Count(1..=CALLS_MAX), check);
    let max_calls = raw.max_calls.or(0, &Count(0..=CALLS_MAX), check);
    let task_support = Perhaps(TASK_SUPPORT);
    let (graces, drains) = (Time(Duration::ZERO..=GRACE_MAX), Time(Duration::ZERO..=24 * HOUR));
    Some(Server {
        launch,
        revision,
        share,
        warm: warm(raw, share, max_instances, check),
        start: raw.start.or(StartWhen::Lazy, &START, check),
        start_timeout: raw.start_timeout.or(START_TIMEOUT, &Time(MS..=HOUR), check),
        idle_exit: raw.idle_exit.or(Some(IDLE_EXIT), &TimeOrOff("10m"), check),
        max_instances,
        max_instances_per_identity: own.or(most_of(max_instances), &instances, check),
        places: ServerPlaces {
            max: running,
            per_identity: own_running.or_else(|| running.map(most_of)),
        },
        max_calls: (max_calls > 0).then_some(max_calls),
        timeout: raw.timeout.or(TIMEOUT, &Time(MS..=YEAR), check),
        heartbeat: raw.heartbeat.or(daemon.heartbeat, &Heartbeat, check),
        cancel_grace: raw.cancel_grace.or(GRACE, &graces, check),
        kill_grace: raw.kill_grace.or(GRACE, &graces, check),
        drain: raw.drain.or(DRAIN, &drains, check),
        on_ignored_cancel: on_ignored_cancel(raw, share, check),
        task_support: raw.task_support.or(None, &task_support, check),
        pin: raw.pin.or(Pin::Off, &PIN, check),
        prefix: raw.prefix.read(&Prefix, check),
        filter: NameFilter { only: patterns(&raw.tools, check), hide: patterns(&raw.hide, check) },
        allow: identities::allow(&raw.allow, check),
        confirm: confirm(&raw.confirm, check),
        name: name?,
        command: command?,
        remote,
    })
}

const SHARE: Choice<'_, Share> = Choice(&[
    ("connection", Share::Connection),
    ("identity", Share::Identity),
    ("call", Share::Call),
]);
const START: Choice<'_, StartWhen> =
    Choice(&[("lazy", StartWhen::Lazy), ("eager", StartWhen::Eager)]);
const PIN: Choice<'_, Pin> =
    Choice(&[("off", Pin::Off), ("warn", Pin::Warn), ("refuse", Pin::Refuse)]);
pub(super) const TASK_SUPPORT: Choice<'_, TaskSupport> = Choice(&[
    ("forbidden", TaskSupport::Forbidden),
    ("optional", TaskSupport::Optional),
    ("required", TaskSupport::Required),
]);
pub(super) const ON_IGNORED_CANCEL: Choice<'_, OnIgnoredCancel> =
    Choice(&[("replace", OnIgnoredCancel::Replace), ("leave", OnIgnoredCancel::Leave)]);

/// The command of a server, or its URL, and its revision. A URL that is wrong is told.
fn target(
    at: usize,
    raw: &raw::Server,
    check: &mut Checker<'_>,
) -> (Option<Vec<OsString>>, Option<RemoteServer>, Revision) {
    if raw.remote.url.is_some() {
        let remote = server_url::remote(raw, check);
        let (remote, revision) = remote.unzip();
        return (remote.is_some().then(Vec::new), remote, revision.unwrap_or_default());
    }
    server_url::refuse_keys_of_urls(raw, check);
    let words: Vec<(&str, Revision)> =
        Revision::words().filter_map(|word| Some((word, Revision::of(word)?))).collect();
    let revision = raw.revision.or(Revision::Auto, &Choice(&words), check);
    (command(at, &raw.command, check), None, revision)
}

fn on_ignored_cancel(raw: &raw::Server, share: Share, check: &mut Checker<'_>) -> OnIgnoredCancel {
    // REM-02: silence of a server by URL is no evidence, and other calls may use its session.
    let default = match raw.remote.url.is_some() && share != Share::Call {
        true => OnIgnoredCancel::Leave,
        false => OnIgnoredCancel::Replace,
    };
    raw.on_ignored_cancel.or(default, &ON_IGNORED_CANCEL, check)
}

fn is_usual(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Name of a server, an agent or a profile.
pub(super) fn name(at: usize, raw: &Entry<String>, check: &mut Checker<'_>) -> Option<String> {
    let Some(written) = raw.as_ref() else {
        let what = format!("this {} has no `name`", raw.key().table);
        check.missing(at, what, "write name = \"…\"");
        return None;
    };
    let name = written.get_ref();
    if (1..=SERVER_NAME_MAX).contains(&name.len()) && name.chars().all(is_usual) {
        return Some(name.clone());
    }
    let hint = format!("such a name consists of 1 to {SERVER_NAME_MAX} of A-Z a-z 0-9 _ - .");
    check.bad_value(raw.key(), written.span().start, &format!("{name:?}"), hint);
    None
}

/// Text before names of tools.
struct Prefix;

impl Kind<String> for Prefix {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<String> {
        let prefix = written.get_ref();
        if prefix.len() <= SERVER_NAME_MAX && prefix.chars().all(is_usual) {
            return Some(prefix.clone());
        }
        let hint = format!("a prefix consists of at most {SERVER_NAME_MAX} of A-Z a-z 0-9 _ - .");
        check.bad_value(key, written.span().start, &format!("{prefix:?}"), hint);
        None
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// Program and arguments, taken literally.
pub(super) fn command(
    at: usize,
    entry: &Entry<Vec<Text>>,
    check: &mut Checker<'_>,
) -> Option<Vec<OsString>> {
    let table = entry.key().table;
    let kind = table.trim_matches(['[', ']']);
    let example =
        format!("write the program and its arguments, such as [\"npx\", \"-y\", \"some-{kind}\"]");
    let Some(raw) = entry.as_ref() else {
        check.missing(at, format!("this {table} has no `command`"), example);
        return None;
    };
    let Some((program, rest)) = raw.get_ref().split_first() else {
        check.bad_value(entry.key(), raw.span().start, "[]", example);
        return None;
    };
    let mut argv = Vec::new();
    let text = program.get_ref();
    let hint = if text.is_empty() {
        Some("the first element names the program")
    } else if text.contains('/') {
        match check.anchored(text) {
            Ok((base, rest)) => {
                argv.push(base.join(rest).into());
                None
            }
            Err(hint) => Some(hint),
        }
    } else {
        argv.push(text.into());
        None
    };
    if let Some(hint) = hint {
        let what = format!("`command` in {table} runs {text:?}");
        check.problem(program.span().start, what, hint);
    }
    argv.extend(rest.iter().map(|text| OsString::from(text.get_ref())));
    if let Some(bad) = raw.get_ref().iter().find(|text| text.get_ref().contains('\0')) {
        let what = format!("`command` in {table} holds {:?}", bad.get_ref());
        check.problem(bad.span().start, what, "must not contain a NUL byte");
    }
    Some(argv)
}

fn warm(raw: &raw::Server, share: Share, max_instances: usize, check: &mut Checker<'_>) -> usize {
    let warm = raw.warm.or(1, &Count(0..=INSTANCES_MAX), check);
    let Some(at) = raw.warm.at() else { return warm };
    if share != Share::Call {
        let what = "`warm` in [[server]] has a meaning with share = \"call\" only";
        check.problem(at, what, "set that, or leave it out");
    } else if warm > max_instances {
        let hint = format!("it takes at most `max_instances`, which is {max_instances}");
        check.bad_value(raw.warm.key(), at, &warm.to_string(), hint);
    }
    warm
}

/// Patterns of names of tools.
pub(super) fn patterns(raw: &Entry<Vec<Text>>, check: &mut Checker<'_>) -> Vec<Box<str>> {
    let key = raw.key();
    let Some(raw) = raw.as_ref() else { return Vec::new() };
    if raw.get_ref().is_empty() && key.name == "tools" {
        let hint = "list patterns such as \"create_*\", or leave the key out to offer all tools";
        check.bad_value(key, raw.span().start, "[]", hint);
    }
    let mut found = Vec::new();
    for pattern in raw.get_ref() {
        let text = pattern.get_ref();
        if text.is_empty() || text.chars().any(char::is_control) {
            let hint =
                "a pattern is the name of a tool; `*` stands for any characters, `?` for one";
            check.bad_value(key, pattern.span().start, &format!("{text:?}"), hint);
        } else {
            found.push(text.as_str().into());
        }
    }
    found
}

fn confirm(raw: &Entry<Ordered<Text>>, check: &mut Checker<'_>) -> BTreeMap<String, String> {
    let mut questions = BTreeMap::new();
    for (tool, question) in raw.pairs() {
        if question.get_ref().trim().is_empty() {
            let what = format!("`confirm` in [[server]] has no question for {:?}", tool.get_ref());
            check.problem(question.span().start, what, "write a question, or leave the tool out");
        }
        questions.insert(tool.get_ref().clone(), question.get_ref().clone());
    }
    questions
}

/// Reports instances that would need a caller before there is one.
fn check_user(raw: &raw::Server, run_as: Option<RunAs>, share: Share, check: &mut Checker<'_>) {
    if run_as == Some(RunAs::Peer) && share == Share::Call {
        let at = raw.confinement.run_as.at().unwrap_or_default();
        let what = "`run_as` in [[server]] is \"peer\" with share = \"call\"";
        let hint = "its instances start before their caller is known: use share = \"identity\", \
                    or name a user";
        check.problem(at, what, hint);
    }
}
