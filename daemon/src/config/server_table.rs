//! `[[server]]` and `[servers]` as written, checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use ceased_core::tool::TaskSupport;
use ceased_core::upstream::server::{NameFilter, OnIgnoredCancel, Pin, Share, StartWhen};
use ceased_core::upstream::spoken::Revision;
use toml::Spanned;

use super::check::{Checker, Key};
use super::defaults::{STARTS_MAX, most_of, start_at_once_default};
use super::error::line_of;
use super::forms::heartbeat;
use super::json::Ordered;
use super::kinds::{Count, HOUR, Kind, MS, YEAR};
use super::launch::Launch;
use super::remote_server::RemoteServer;
use super::server::{SERVER_NAME_MAX, Server, clashes};
use super::server_url;
use super::table::Table;
use super::tool::variable_flaw;
use super::units::parse_duration;
use super::variables::Variables;
use super::{Daemon, RunAs, Tool, identities, raw};

const TABLE: &str = "[[server]]";
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

const fn key(name: &'static str) -> Key {
    Key { table: TABLE, name }
}

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
        let place = raw.name.as_ref().map_or(at, |it| it.span().start);
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
    let name = name(TABLE, at, raw.name.as_ref(), check);
    let (command, remote, revision) = target(at, raw, check);
    let launch = Launch::of(TABLE, &raw.environment, &raw.confinement, daemon.isolation, check);
    let share = check.choice(
        key("share"),
        raw.share.as_ref(),
        Share::Connection,
        &[("connection", Share::Connection), ("identity", Share::Identity), ("call", Share::Call)],
    );
    check_user(raw, launch.run_as, share, check);
    let instances = raw.max_instances.as_ref();
    let max_instances = check.whole(key("max_instances"), instances, INSTANCES, 1..=INSTANCES_MAX);
    let max_instances_per_identity = check.whole(
        key("max_instances_per_identity"),
        raw.max_instances_per_identity.as_ref(),
        most_of(max_instances),
        1..=INSTANCES_MAX,
    );
    let warm = warm(raw, share, max_instances, check);
    let start = check.choice(
        key("start"),
        raw.start.as_ref(),
        StartWhen::Lazy,
        &[("lazy", StartWhen::Lazy), ("eager", StartWhen::Eager)],
    );
    let max_calls = check.whole(key("max_calls"), raw.max_calls.as_ref(), 0, 0..=CALLS_MAX);
    let on_ignored_cancel = on_ignored_cancel(raw, share, check);
    let task_support = check.choice(
        key("task_support"),
        raw.task_support.as_ref(),
        None,
        &[TaskSupport::Forbidden, TaskSupport::Optional, TaskSupport::Required]
            .map(|support| (support.as_str(), Some(support))),
    );
    let pins = [Pin::Off, Pin::Warn, Pin::Refuse].map(|pin| (pin.as_str(), pin));
    let pin = check.choice(key("pin"), raw.pin.as_ref(), Pin::Off, &pins);
    let prefix = raw.prefix.as_ref().and_then(|it| prefix(it, check));
    let filter = NameFilter {
        only: patterns(TABLE, "tools", raw.tools.as_ref(), check),
        hide: patterns(TABLE, "hide", raw.hide.as_ref(), check),
    };
    let mut time = |name, raw: &Option<_>, default, range| {
        check.duration(key(name), raw.as_ref(), default, range)
    };
    let start_timeout = time("start_timeout", &raw.start_timeout, START_TIMEOUT, MS..=HOUR);
    let timeout = time("timeout", &raw.timeout, TIMEOUT, MS..=YEAR);
    let zero = Duration::ZERO;
    let cancel_grace = time("cancel_grace", &raw.cancel_grace, GRACE, zero..=GRACE_MAX);
    let kill_grace = time("kill_grace", &raw.kill_grace, GRACE, zero..=GRACE_MAX);
    let drain = time("drain", &raw.drain, DRAIN, zero..=24 * HOUR);
    Some(Server {
        idle_exit: idle_exit(raw.idle_exit.as_ref(), check),
        heartbeat: heartbeat(key("heartbeat"), raw.heartbeat.as_ref(), daemon.heartbeat, check),
        allow: identities::allow(TABLE, raw.allow.as_ref(), check),
        confirm: confirm(raw.confirm.as_ref(), check),
        name: name?,
        command: command?,
        remote,
        launch,
        prefix,
        revision,
        share,
        warm,
        start,
        start_timeout,
        max_instances,
        max_instances_per_identity,
        max_calls: (max_calls > 0).then_some(max_calls),
        timeout,
        cancel_grace,
        kill_grace,
        drain,
        on_ignored_cancel,
        task_support,
        pin,
        filter,
    })
}

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
    let revision = check.choice(key("revision"), raw.revision.as_ref(), Revision::Auto, &words);
    (command(TABLE, at, raw.command.as_ref(), check), None, revision)
}

fn on_ignored_cancel(raw: &raw::Server, share: Share, check: &mut Checker<'_>) -> OnIgnoredCancel {
    // REM-02: silence of a server by URL is no evidence, and other calls may use its session.
    let default = match raw.remote.url.is_some() && share != Share::Call {
        true => OnIgnoredCancel::Leave,
        false => OnIgnoredCancel::Replace,
    };
    check.choice(
        key("on_ignored_cancel"),
        raw.on_ignored_cancel.as_ref(),
        default,
        &[("replace", OnIgnoredCancel::Replace), ("leave", OnIgnoredCancel::Leave)],
    )
}

fn is_usual(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Name of a server, an agent or a profile.
pub(super) fn name(
    table: &'static str,
    at: usize,
    raw: Option<&raw::Text>,
    check: &mut Checker<'_>,
) -> Option<String> {
    let Some(raw) = raw else {
        check.missing(at, format!("this {table} has no `name`"), "write name = \"…\"");
        return None;
    };
    let name = raw.get_ref();
    if (1..=SERVER_NAME_MAX).contains(&name.len()) && name.chars().all(is_usual) {
        return Some(name.clone());
    }
    let hint = format!("such a name consists of 1 to {SERVER_NAME_MAX} of A-Z a-z 0-9 _ - .");
    check.bad_value(Key { table, name: "name" }, raw.span().start, &format!("{name:?}"), hint);
    None
}

fn prefix(raw: &raw::Text, check: &mut Checker<'_>) -> Option<String> {
    let prefix = raw.get_ref();
    if prefix.len() <= SERVER_NAME_MAX && prefix.chars().all(is_usual) {
        return Some(prefix.clone());
    }
    let hint = format!("a prefix consists of at most {SERVER_NAME_MAX} of A-Z a-z 0-9 _ - .");
    check.bad_value(key("prefix"), raw.span().start, &format!("{prefix:?}"), hint);
    None
}

/// Program and arguments, taken literally.
pub(super) fn command(
    table: &'static str,
    at: usize,
    raw: Option<&Spanned<Vec<raw::Text>>>,
    check: &mut Checker<'_>,
) -> Option<Vec<OsString>> {
    let kind = table.trim_matches(['[', ']']);
    let example =
        format!("write the program and its arguments, such as [\"npx\", \"-y\", \"some-{kind}\"]");
    let Some(raw) = raw else {
        check.missing(at, format!("this {table} has no `command`"), example);
        return None;
    };
    let Some((program, rest)) = raw.get_ref().split_first() else {
        check.bad_value(Key { table, name: "command" }, raw.span().start, "[]", example);
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

/// Variables that are set, by their names.
pub(super) fn env(
    table: &'static str,
    raw: Option<&Spanned<Ordered<raw::Text>>>,
    check: &mut Checker<'_>,
) -> Variables {
    let mut variables = Vec::new();
    for (name, value) in raw.iter().flat_map(|raw| &raw.get_ref().0) {
        let at = name.span().start;
        let (name, value) = (name.get_ref(), value.get_ref());
        if let Some(hint) = variable_flaw(name) {
            check.problem(at, format!("`env` in {table} sets {name:?}"), hint);
        } else if value.contains('\0') {
            // The value may be a secret.
            let what = format!("`env` in {table} sets {name:?} to a text with a NUL byte");
            check.problem(at, what, "must not contain a NUL byte");
        } else {
            variables.push((name.clone(), value.clone()));
        }
    }
    Variables(variables)
}

fn warm(raw: &raw::Server, share: Share, max_instances: usize, check: &mut Checker<'_>) -> usize {
    let warm = check.whole(key("warm"), raw.warm.as_ref(), 1, 0..=INSTANCES_MAX);
    let Some(written) = &raw.warm else { return warm };
    let at = written.span().start;
    if share != Share::Call {
        let what = "`warm` in [[server]] has a meaning with share = \"call\" only";
        check.problem(at, what, "set that, or leave it out");
    } else if warm > max_instances {
        let hint = format!("it takes at most `max_instances`, which is {max_instances}");
        check.bad_value(key("warm"), at, &warm.to_string(), hint);
    }
    warm
}

fn idle_exit(raw: Option<&raw::Text>, check: &mut Checker<'_>) -> Option<Duration> {
    let Some(raw) = raw else { return Some(IDLE_EXIT) };
    let text = raw.get_ref();
    match parse_duration(text) {
        _ if text == "off" => None,
        Ok(span) if (MS..=YEAR).contains(&span) => Some(span),
        Ok(_) | Err(_) => {
            let hint = "it takes 1ms to 365d, such as \"10m\", or \"off\"";
            check.bad_value(key("idle_exit"), raw.span().start, &format!("{text:?}"), hint);
            None
        }
    }
}

/// Patterns of names of tools; `table` is the heading of theirs.
pub(super) fn patterns(
    table: &'static str,
    name: &'static str,
    raw: Option<&Spanned<Vec<raw::Text>>>,
    check: &mut Checker<'_>,
) -> Vec<Box<str>> {
    let key = Key { table, name };
    let Some(raw) = raw else { return Vec::new() };
    if raw.get_ref().is_empty() && name == "tools" {
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

fn confirm(
    raw: Option<&Spanned<Ordered<raw::Text>>>,
    check: &mut Checker<'_>,
) -> BTreeMap<String, String> {
    let mut questions = BTreeMap::new();
    for (tool, question) in raw.iter().flat_map(|raw| &raw.get_ref().0) {
        if question.get_ref().trim().is_empty() {
            let what = format!("`confirm` in {TABLE} has no question for {:?}", tool.get_ref());
            check.problem(question.span().start, what, "write a question, or leave the tool out");
        }
        questions.insert(tool.get_ref().clone(), question.get_ref().clone());
    }
    questions
}

/// Reports instances that would need a caller before there is one.
fn check_user(raw: &raw::Server, run_as: Option<RunAs>, share: Share, check: &mut Checker<'_>) {
    if run_as == Some(RunAs::Peer) && share == Share::Call {
        let at = raw.confinement.run_as.as_ref().map_or(0, |it| it.span().start);
        let what = "`run_as` in [[server]] is \"peer\" with share = \"call\"";
        let hint = "its instances start before their caller is known: use share = \"identity\", \
                    or name a user";
        check.problem(at, what, hint);
    }
}
