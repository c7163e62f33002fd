//! The table of checks, in the order of the report.

use super::checks::{
    calls, extension, http_requests, http_streams, load, notifications, request_ids, tasks, work,
};
use super::context::{Context, Facts};
use super::endings;
use super::era::Era;
use super::finding::Finding;
use super::options::Options;
use super::session::Trouble;
use super::suite::{Check, Subject};
use super::target::Target;

/// Precondition of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A call that takes long.
    Tool,
    /// A call that takes a second.
    Brief,
    /// Session tasks, and both calls.
    Tasks,
    /// As tasks, and a command that finds its tasks again.
    Restart,
    /// The tasks extension, and both calls.
    Extension,
}

impl Needs {
    /// The reason for which the check cannot be done.
    pub(super) fn missing(self, facts: &Facts, restart: bool) -> Option<String> {
        let missing = self.lacks(facts, restart);
        let failed = facts.failed.clone().filter(|_| self != Self::Nothing);
        failed.or_else(|| missing.map(str::to_owned))
    }

    fn lacks(self, facts: &Facts, restart: bool) -> Option<&'static str> {
        const TOOL: &str =
            "no tool seems to wait; name a call that takes long with --tool and --args";
        const BRIEF: &str =
            "needs a call that ends within two seconds; give its arguments with --brief-args";
        const TASK_ONLY: &str = "the tool must be called as a task";
        const TASKS: &str = "the server declares no tasks for this tool";
        let (has_tool, has_brief) = (facts.long.is_some(), facts.brief.is_some());
        let plain = (!has_tool).then_some(TOOL).or(facts.must_be_task.then_some(TASK_ONLY));
        let both = (!has_tool).then_some(TOOL).or((!has_brief).then_some(BRIEF));
        let tasks = both.or((!facts.has_tasks).then_some(TASKS));
        match self {
            Self::Nothing => None,
            Self::Tool => plain,
            Self::Brief => plain.or((!has_brief).then_some(BRIEF)),
            Self::Tasks => tasks,
            Self::Restart => tasks.or((!restart).then_some(
                "pass --restart if the command finds its tasks again when it is started anew",
            )),
            Self::Extension => both
                .or((!facts.has_extension)
                    .then_some("the server does not declare the tasks extension")),
        }
    }
}

/// Transports over which a check says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Every one.
    Every,
    /// One whose messages arrive in the order in which they are sent.
    Lines,
    /// One on which a cancel is a notification.
    Notified,
    /// Every one, with the processes of the server.
    Command,
    /// Standard input and output of the command.
    Stdio,
    /// HTTP.
    Http,
    /// HTTP in a revision with sessions.
    HttpSession,
    /// As that, with the processes of the server.
    HttpSessionCommand,
    /// HTTP in the revision without sessions.
    HttpStateless,
}

impl Over {
    /// Whether the check is one for servers with this transport.
    pub(super) const fn concerns(self, target: &Target) -> bool {
        let is_of_http = matches!(
            self,
            Self::Http | Self::HttpSession | Self::HttpSessionCommand | Self::HttpStateless
        );
        !is_of_http || target.is_http()
    }

    /// The reason for which the check cannot be done.
    pub(super) fn missing(self, options: &Options, era: &Era) -> Option<&'static str> {
        const COMMAND: &str = "needs the processes of the server; add the command that starts it";
        const SESSION: &str = "this revision has no sessions";
        let (is_http, is_stateless) = (options.target.is_http(), *era == Era::Stateless);
        let command = options.command.is_empty().then_some(COMMAND);
        let session = is_stateless.then_some(SESSION);
        match self {
            Self::Every | Self::Http => None,
            Self::Lines => is_http.then_some("requests over HTTP are in no order"),
            Self::Notified => (is_http && is_stateless)
                .then_some("over HTTP in this revision a cancel closes the stream of its request"),
            Self::Command => command,
            Self::Stdio => {
                (!options.target.is_stdio()).then_some("the server does not end with one client")
            }
            Self::HttpSession => session,
            Self::HttpSessionCommand => session.or(command),
            Self::HttpStateless => (!is_stateless).then_some("this revision has sessions"),
        }
    }
}

/// Precondition of a check, and its transports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wants {
    pub(super) needs: Needs,
    pub(super) over: Over,
}

impl Subject for Context {
    type Needs = Wants;

    fn missing(&self, wants: &Wants) -> Option<String> {
        let over = wants.over.missing(&self.options, &self.facts().era).map(str::to_owned);
        over.or_else(|| wants.needs.missing(self.facts(), self.options.restart))
    }
}

/// The check of the handshake, which is done before all others.
pub(super) const HANDSHAKE: &str = "handshake";

const fn check(
    id: &'static str,
    rule: &'static str,
    needs: Needs,
    [title, remedy]: [&'static str; 2],
    run: fn(&Context) -> Result<Finding, Trouble>,
) -> Check<Context> {
    let needs = Wants { needs, over: Over::Every };
    Check { id, rule, needs, title, remedy, run }
}

impl Check<Context> {
    /// The same, over these transports.
    const fn over(mut self, over: Over) -> Self {
        self.needs.over = over;
        self
    }
}

fn greeted(_: &Context) -> Result<Finding, Trouble> {
    Ok(Finding::holds("the handshake is answered"))
}

const REMEDY_EXIT: &str = "exit when standard input ends, also while a call runs";
const REMEDY_TREE: &str =
    "end the processes of running calls before exiting, or start the server with `ceased wrap --`";
const REMEDY_WORK: &str =
    "pass the cancel on to the work of the tool, or start the server with `ceased wrap --`";
const REMEDY_IGNORE: &str = "ignore a cancel that names no request in progress, without an answer";
const REMEDY_TASK: &str = "see the rules of tasks in revision 2025-11-25";
const REMEDY_EXTENSION: &str = "see the rules of the tasks extension";

/// All checks.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(super) const CHECKS: &[Check<Context>] = &[
    check(
        HANDSHAKE,
        "RPC-04",
        Needs::Nothing,
        ["answers the handshake", "answer the first request; a line on stderr may give the reason"],
        greeted,
    ),
    check(
        "stdout",
        "UPS-14",
        Needs::Nothing,
        ["prints messages only on stdout", "print logs and banners on stderr"],
        notifications::stdout,
    ),
    check(
        "initialize-cancel",
        "CAN-04",
        Needs::Nothing,
        ["answers initialize although it is cancelled", "ignore a cancel that names initialize"],
        notifications::initialize,
    )
    .over(Over::Lines),
    check(
        "cancel-unknown",
        "CAN-09",
        Needs::Nothing,
        ["ignores a cancel of an unknown request", REMEDY_IGNORE],
        notifications::unknown,
    ),
    check(
        "cancel-answered",
        "CAN-09",
        Needs::Nothing,
        ["ignores a cancel of an answered request", REMEDY_IGNORE],
        notifications::answered,
    ),
    check(
        "cancel-malformed",
        "CAN-14",
        Needs::Nothing,
        ["ignores a malformed cancel", REMEDY_IGNORE],
        notifications::malformed,
    ),
    check(
        "id-forms",
        "CAN-01, RPC-01",
        Needs::Nothing,
        [
            "returns ids of every form as they are",
            "keep the id of a request as the JSON value that it is: 1 is not \"1\", and 0 and \"\" are ids",
        ],
        request_ids::forms,
    ),
    check(
        "id-types",
        "CAN-01",
        Needs::Brief,
        [
            "tells the ids 900 and \"900\" apart in a cancel",
            "look up a cancelled request by the type of its id, too",
        ],
        request_ids::types,
    )
    .over(Over::Notified),
    check(
        "id-reused",
        "MOD-05",
        Needs::Tool,
        [
            "answers a new request with the id of a cancelled one",
            "forget a cancelled id once a new request has it",
        ],
        request_ids::reused,
    ),
    check(
        "id-duplicate",
        "RPC-02",
        Needs::Brief,
        [
            "answers the first of two requests with one id",
            "refuse a request whose id is in flight with -32600",
        ],
        request_ids::duplicate,
    ),
    check(
        "cancel-no-answer",
        "CAN-08",
        Needs::Tool,
        [
            "does not answer a cancelled request",
            "send no response for a request that was cancelled, neither a result nor an error",
        ],
        calls::no_answer,
    )
    .over(Over::Notified),
    check(
        "cancel-no-progress",
        "MOD-04",
        Needs::Tool,
        ["sends no progress after a cancel", "check for the cancel before sending progress"],
        calls::no_progress,
    )
    .over(Over::Notified),
    check(
        "cancel-early",
        "CAN-11",
        Needs::Brief,
        [
            "heeds a cancel that comes together with its request",
            "register a request before it is queued, so that a cancel finds it",
        ],
        calls::early,
    )
    .over(Over::Lines),
    check(
        "ping-during-call",
        "RPC-03",
        Needs::Tool,
        [
            "answers pings during a call and after its cancel",
            "run calls beside the loop that reads messages",
        ],
        calls::ping,
    ),
    check(
        "work-processes",
        "CAN-06, STOP-01",
        Needs::Tool,
        ["ends the processes of a cancelled call", REMEDY_WORK],
        work::processes,
    )
    .over(Over::Command),
    check(
        "work-cpu",
        "CAN-06",
        Needs::Tool,
        ["stops computing for a cancelled call", REMEDY_WORK],
        work::cpu,
    )
    .over(Over::Command),
    check(
        "work-writes",
        "CAN-06",
        Needs::Tool,
        ["stops writing for a cancelled call", REMEDY_WORK],
        work::writes,
    )
    .over(Over::Command),
    check(
        "work-stubborn",
        "UPS-05",
        Needs::Nothing,
        ["ends work that ignores the cancel", REMEDY_WORK],
        work::stubborn,
    )
    .over(Over::Command),
    check(
        "storm",
        "CAN-07, CAN-11",
        Needs::Tool,
        ["survives 1,000 calls, each cancelled at once", "free what a cancelled request holds"],
        load::storm,
    ),
    check(
        "cancel-behind-input",
        "CAN-11",
        Needs::Tool,
        ["reads on behind 5 MiB of input", "accept long lines, and read while calls run"],
        load::behind_input,
    )
    .over(Over::Lines),
    check(
        "no-reader",
        "CAN-11",
        Needs::Nothing,
        [
            "recovers from a client that does not read",
            "keep unsent answers, and go on once the client reads",
        ],
        load::no_reader,
    )
    .over(Over::Lines),
    check(
        "eof-exit",
        "UPS-07",
        Needs::Nothing,
        ["exits when its input ends", REMEDY_EXIT],
        endings::eof_exit,
    )
    .over(Over::Stdio),
    check(
        "eof-tree",
        "STOP-01",
        Needs::Nothing,
        ["leaves no process when its input ends", REMEDY_TREE],
        endings::eof_tree,
    )
    .over(Over::Stdio),
    check(
        "sigterm-exit",
        "UPS-07",
        Needs::Nothing,
        ["exits on SIGTERM", "handle SIGTERM, and exit also while a call runs"],
        endings::sigterm_exit,
    )
    .over(Over::Command),
    check(
        "sigterm-tree",
        "STOP-01",
        Needs::Nothing,
        ["leaves no process on SIGTERM", REMEDY_TREE],
        endings::sigterm_tree,
    )
    .over(Over::Command),
    check(
        "killed-exit",
        "UPS-07",
        Needs::Nothing,
        ["exits when its client is killed", REMEDY_EXIT],
        endings::killed_exit,
    )
    .over(Over::Stdio),
    check(
        "killed-tree",
        "STOP-01",
        Needs::Nothing,
        ["leaves no process when its client is killed", REMEDY_TREE],
        endings::killed_tree,
    )
    .over(Over::Stdio),
    check(
        "task-lifecycle",
        "TSK-07, TSK-14",
        Needs::Tasks,
        ["creates, completes and returns a task", REMEDY_TASK],
        tasks::lifecycle,
    ),
    check(
        "task-cancel",
        "TSK-24, TSK-26",
        Needs::Tasks,
        ["cancels a task at once and for good", REMEDY_TASK],
        tasks::cancelled,
    ),
    check(
        "task-cancel-result",
        "TSK-17",
        Needs::Tasks,
        ["answers tasks/result of a cancelled task", REMEDY_TASK],
        tasks::cancelled_result,
    ),
    check(
        "task-cancel-work",
        "TSK-25",
        Needs::Tasks,
        ["ends the work of a cancelled task", REMEDY_WORK],
        tasks::cancelled_work,
    )
    .over(Over::Command),
    check(
        "task-waiters",
        "TSK-15",
        Needs::Tasks,
        ["answers two waiters for a result", REMEDY_TASK],
        tasks::waiters,
    ),
    check(
        "task-waiter-cancel",
        "CAN-15",
        Needs::Tasks,
        ["keeps a task whose waiter is cancelled", REMEDY_TASK],
        tasks::waiter_cancelled,
    ),
    check(
        "task-notification",
        "CAN-05",
        Needs::Tasks,
        ["keeps a task on notifications/cancelled", REMEDY_TASK],
        tasks::notification,
    ),
    check(
        "task-ttl",
        "TSK-34",
        Needs::Tasks,
        ["states the actual ttl of a task", REMEDY_TASK],
        tasks::ttl,
    ),
    check(
        "task-pages",
        "TSK-19, TSK-21",
        Needs::Tasks,
        ["lists each task once", REMEDY_TASK],
        tasks::pages,
    ),
    check(
        "task-foreign",
        "TSK-27",
        Needs::Tasks,
        ["refuses an unknown task id", REMEDY_TASK],
        tasks::foreign,
    ),
    check(
        "task-cursor",
        "TSK-22",
        Needs::Tasks,
        ["refuses an unknown cursor", REMEDY_TASK],
        tasks::cursor,
    ),
    check(
        "task-terminal",
        "TSK-23",
        Needs::Tasks,
        ["refuses to cancel a terminal task", REMEDY_TASK],
        tasks::terminal,
    ),
    check(
        "task-restart",
        "DUR-01",
        Needs::Restart,
        ["keeps its tasks when it is killed", "store a task before its creation is answered"],
        tasks::restart,
    )
    .over(Over::Command),
    check(
        "extension-lifecycle",
        "EXT-02, EXT-06",
        Needs::Extension,
        ["creates and completes a task of the extension", REMEDY_EXTENSION],
        extension::lifecycle,
    ),
    check(
        "extension-cancel",
        "EXT-04",
        Needs::Extension,
        ["cancels a task of the extension", REMEDY_EXTENSION],
        extension::cancelled,
    ),
    check(
        "extension-foreign",
        "EXT-04",
        Needs::Extension,
        ["refuses an unknown id of the extension", REMEDY_EXTENSION],
        extension::foreign,
    ),
    check(
        "extension-undeclared",
        "EXT-01",
        Needs::Extension,
        ["refuses a request that does not declare the extension", REMEDY_EXTENSION],
        extension::undeclared,
    ),
    check(
        "http-answer-end",
        "HTTP-03",
        Needs::Nothing,
        ["ends the response after the answer", "close the stream of a request after its answer"],
        http_streams::answer_end,
    )
    .over(Over::Http),
    check(
        "http-cancel-end",
        "HTTP-07",
        Needs::Tool,
        ["ends the response of a cancelled request", "close the stream of a cancelled request"],
        http_streams::cancel_end,
    )
    .over(Over::HttpSession),
    check(
        "http-disconnect",
        "HTTP-07",
        Needs::Tool,
        [
            "takes a disconnect for no cancel",
            "let a call go on when its connection is closed: only notifications/cancelled cancels it",
        ],
        http_streams::disconnect,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-posted-cancel",
        "MOD-06, HTTP-08",
        Needs::Brief,
        [
            "takes a posted cancel for none",
            "ignore a posted notifications/cancelled: the end of the stream is the cancel",
        ],
        http_streams::posted_cancel,
    )
    .over(Over::HttpStateless),
    check(
        "http-notification",
        "HTTP-03",
        Needs::Nothing,
        ["answers a notification with 202", "answer an accepted notification with 202 and no body"],
        http_requests::notification,
    )
    .over(Over::Http),
    check(
        "http-origin",
        "HTTP-02",
        Needs::Nothing,
        [
            "refuses a foreign Origin",
            "refuse a request whose Origin is not allowed with 403, against DNS rebinding",
        ],
        http_requests::origin,
    )
    .over(Over::Http),
    check(
        "http-two-lengths",
        "HTTP-10",
        Needs::Nothing,
        ["refuses two lengths of one body", "refuse two unequal Content-Length headers with 400"],
        http_requests::two_lengths,
    )
    .over(Over::Http),
    check(
        "http-version",
        "HTTP-05, HTTP-09",
        Needs::Nothing,
        ["refuses an unknown version", "refuse an unsupported MCP-Protocol-Version with 400"],
        http_requests::version,
    )
    .over(Over::Http),
    check(
        "http-session-unknown",
        "HTTP-04",
        Needs::Nothing,
        [
            "refuses an unknown session",
            "refuse an unknown Mcp-Session-Id with 404, and a missing one with 400",
        ],
        http_requests::session_unknown,
    )
    .over(Over::HttpSession),
    check(
        "http-session-delete",
        "HTTP-04",
        Needs::Nothing,
        ["ends a session on DELETE", "refuse the id of an ended session with 404"],
        http_requests::session_delete,
    )
    .over(Over::HttpSession),
    check(
        "http-session-work",
        "HTTP-04, STOP-01",
        Needs::Tool,
        ["ends the calls of an ended session", "cancel the calls of a session that DELETE ends"],
        http_streams::session_work,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-session-freed",
        "HTTP-04",
        Needs::Nothing,
        ["frees ended sessions", "free everything that a session holds when DELETE ends it"],
        http_requests::session_freed,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-headers",
        "HTTP-09",
        Needs::Nothing,
        [
            "refuses headers that do not equal the body",
            "refuse a missing or wrong Mcp-Method with 400 and -32020",
        ],
        http_requests::headers,
    )
    .over(Over::HttpStateless),
    check(
        "http-unknown-method",
        "HTTP-09",
        Needs::Nothing,
        ["answers an unknown method with 404", "answer an unknown method with 404 and -32601"],
        http_requests::unknown_method,
    )
    .over(Over::HttpStateless),
    check(
        "http-get",
        "HTTP-01",
        Needs::Nothing,
        ["refuses GET", "refuse GET without a session with 405"],
        http_requests::get,
    )
    .over(Over::HttpStateless),
];
