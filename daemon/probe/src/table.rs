//! The table of checks, in the order of the report.

use super::about::{About, Group};
use super::arena::Arena;
use super::checks::{
    calls, extension, http_requests, http_streams, load, notifications, request_ids, tasks, work,
};
use super::context::{Context, Facts};
use super::endings;
use super::era::Era;
use super::finding::{Finding, SessionError};
use super::options::Options;
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
        // Options help only where the server has tasks.
        let undeclared = has_tool && !facts.has_tasks || facts.capabilities.get("tasks").is_none();
        let tasks = undeclared.then_some(TASKS).or(both);
        match self {
            Self::Nothing => None,
            Self::Tool => plain,
            Self::Brief => plain.or((!has_brief).then_some(BRIEF)),
            Self::Tasks => tasks,
            Self::Restart => tasks.or((!restart).then_some(
                "pass --restart if the command finds its tasks again when it is started anew",
            )),
            Self::Extension => (!facts.has_extension)
                .then_some("the server does not declare the tasks extension")
                .or(both),
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

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn missing(&self, wants: &Wants) -> Option<String> {
        let over = wants.over.missing(&self.options, &self.facts().era).map(str::to_owned);
        over.or_else(|| wants.needs.missing(self.facts(), self.options.restart))
    }
}

/// The check of the handshake, which is done before all others.
pub(super) const HANDSHAKE: &str = "handshake";

const fn check(
    id: &'static str,
    group: Group,
    rule: &'static str,
    needs: Needs,
    [title, method, remedy]: [&'static str; 3],
    run: fn(&Context) -> Result<Finding, SessionError>,
) -> Check<Context> {
    let needs = Wants { needs, over: Over::Every };
    Check { about: About { id, group, rule, title, method, remedy }, needs, run }
}

impl Check<Context> {
    /// The same, over these transports.
    const fn over(mut self, over: Over) -> Self {
        self.needs.over = over;
        self
    }
}

fn greeted(_: &Context) -> Result<Finding, SessionError> {
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
        Group::Handshake,
        "RPC-04",
        Needs::Nothing,
        ["answers the handshake", "Sends `initialize`, or `server/discover` to a server that refuses it.", "answer the first request; a line on stderr may give the reason"],
        greeted,
    ),
    check(
        "stdout",
        Group::Handshake,
        "UPS-14",
        Needs::Nothing,
        ["prints messages only on stdout", "Starts a call and reads standard output for a while. A line that is no JSON object deviates.", "print logs and banners on stderr"],
        notifications::stdout,
    ),
    check(
        "initialize-cancel",
        Group::Handshake,
        "CAN-04",
        Needs::Nothing,
        ["answers initialize although it is cancelled", "Sends `initialize` and a cancel of it in one write.", "ignore a cancel that names initialize"],
        notifications::initialize,
    )
    .over(Over::Lines),
    check(
        "cancel-unknown",
        Group::Messages,
        "CAN-09",
        Needs::Nothing,
        ["ignores a cancel of an unknown request", "Cancels three ids that were never used, and pings after each.", REMEDY_IGNORE],
        notifications::unknown,
    ),
    check(
        "cancel-answered",
        Group::Messages,
        "CAN-09",
        Needs::Nothing,
        ["ignores a cancel of an answered request", "Cancels a ping that was answered.", REMEDY_IGNORE],
        notifications::answered,
    ),
    check(
        "cancel-malformed",
        Group::Messages,
        "CAN-14",
        Needs::Nothing,
        ["ignores a malformed cancel", "Sends nine malformed cancels, and pings after each.", REMEDY_IGNORE],
        notifications::malformed,
    ),
    check(
        "id-forms",
        Group::Messages,
        "CAN-01, RPC-01",
        Needs::Nothing,
        ["returns ids of every form as they are", "Sends pings with the ids `0`, `\"\"`, `1`, `\"1\"`, `-7`, 2^53 - 1 and a string with quotes, all at once.",
            "keep the id of a request as the JSON value that it is: 1 is not \"1\", and 0 and \"\" are ids",
        ],
        request_ids::forms,
    ),
    check(
        "id-types",
        Group::Calls,
        "CAN-01",
        Needs::Brief,
        ["tells the ids 900 and \"900\" apart in a cancel", "Runs a call with the id `900`, cancels `\"900\"`, and waits for the result of `900`. Needs both calls.",
            "look up a cancelled request by the type of its id, too",
        ],
        request_ids::types,
    )
    .over(Over::Notified),
    check(
        "id-reused",
        Group::Calls,
        "MOD-05",
        Needs::Tool,
        ["answers a new request with the id of a cancelled one", "Cancels a call, and pings with its id. Needs a call that takes long.",
            "forget a cancelled id once a new request has it",
        ],
        request_ids::reused,
    ),
    check(
        "id-duplicate",
        Group::Calls,
        "RPC-02",
        Needs::Brief,
        ["answers the first of two requests with one id", "Sends a ping with the id of a running call, and waits for the result of the call. Needs both calls.",
            "refuse a request whose id is in flight with -32600",
        ],
        request_ids::duplicate,
    ),
    check(
        "cancel-no-answer",
        Group::Calls,
        "CAN-08",
        Needs::Tool,
        ["does not answer a cancelled request", "Cancels a call after 300 ms, and watches until it would have ended by itself. Repeats up to three times if the call ends before the cancel. Needs a call that takes long.",
            "send no response for a request that was cancelled, neither a result nor an error",
        ],
        calls::no_answer,
    )
    .over(Over::Notified),
    check(
        "cancel-no-progress",
        Group::Calls,
        "MOD-04",
        Needs::Tool,
        ["sends no progress after a cancel", "Waits for two progress notifications, cancels, lets 250 ms pass for those that cross the cancel, and counts later ones. Needs a call that takes long.", "check for the cancel before sending progress"],
        calls::no_progress,
    )
    .over(Over::Notified),
    check(
        "cancel-early",
        Group::Calls,
        "CAN-11",
        Needs::Brief,
        ["heeds a cancel that comes together with its request", "Sends a call and its cancel in one write, three times. A result shows that the cancel was lost. Needs both calls.",
            "register a request before it is queued, so that a cancel finds it",
        ],
        calls::early,
    )
    .over(Over::Lines),
    check(
        "ping-during-call",
        Group::Calls,
        "RPC-03",
        Needs::Tool,
        ["answers pings during a call and after its cancel", "Pings three times during a call and once after its cancel. Needs a call that takes long.",
            "run calls beside the loop that reads messages",
        ],
        calls::ping,
    ),
    check(
        "work-processes",
        Group::Work,
        "CAN-06, STOP-01",
        Needs::Tool,
        ["ends the processes of a cancelled call", "Lists the processes of the contained job before the call, during it and after its cancel, until the time limit. Needs a call that takes long.", REMEDY_WORK],
        work::processes,
    )
    .over(Over::Command),
    check(
        "work-cpu",
        Group::Work,
        "CAN-06",
        Needs::Tool,
        ["stops computing for a cancelled call", "Measures the CPU time of the job before the call, in twelve samples during four seconds of it, and after its cancel; medians above that before the call are judged. From 8 % of a CPU on the call works. Up to 4 % it is unknown: the start of a process is no computation. In between, the samples are taken again, up to three times, and a call that stays there is unknown in every run; the report says how often. After the cancel, an eighth of the call's use has ended, a quarter of it goes on, and anything in between is unknown. Needs a call that takes long.", REMEDY_WORK],
        work::cpu,
    )
    .over(Over::Command),
    check(
        "work-writes",
        Group::Work,
        "CAN-06",
        Needs::Tool,
        ["stops writing for a cancelled call", "Measures by how much the files of the processes grow; bytes to pipes and sockets do not count. A call that writes in less than three of twelve samples is unknown: that may be a line in a log. Needs a call that takes long.", REMEDY_WORK],
        work::writes,
    )
    .over(Over::Command),
    check(
        "work-stubborn",
        Group::Work,
        "UPS-05",
        Needs::Nothing,
        ["ends work that ignores the cancel", "The same with the call of `--stubborn-tool`.", REMEDY_WORK],
        work::stubborn,
    )
    .over(Over::Command),
    check(
        "storm",
        Group::Load,
        "CAN-07, CAN-11",
        Needs::Tool,
        ["survives 1,000 calls, each cancelled at once", "Sends four storms of 250 calls, each call followed by its cancel, and pings after each storm. A leak is a number of open descriptors that grows by more than 25 in each storm but the first: what a server keeps for itself does not grow. Over HTTP 25 calls run at once. Needs a call that takes long.", "free what a cancelled request holds"],
        load::storm,
    ),
    check(
        "cancel-behind-input",
        Group::Load,
        "CAN-11",
        Needs::Tool,
        ["reads on behind 5 MiB of input", "Starts a call, sends five requests of 1 MiB and the cancel, and pings; each of them must be answered. Needs a call that takes long.", "accept long lines, and read while calls run"],
        load::behind_input,
    )
    .over(Over::Lines),
    check(
        "no-reader",
        Group::Load,
        "CAN-11",
        Needs::Nothing,
        ["recovers from a client that does not read", "Sends `tools/list` requests without reading, waits, and then reads all answers. They are so many that their answers fill the buffers between both sides: 400 to 6,000.",
            "keep unsent answers, and go on once the client reads",
        ],
        load::no_reader,
    )
    .over(Over::Lines),
    check(
        "eof-exit",
        Group::Endings,
        "UPS-07",
        Needs::Nothing,
        ["exits when its input ends", "Closes standard input during a call, and waits for the exit.", REMEDY_EXIT],
        endings::eof_exit,
    )
    .over(Over::Stdio),
    check(
        "eof-tree",
        Group::Endings,
        "STOP-01",
        Needs::Nothing,
        ["leaves no process when its input ends", "Lists the processes one second after that exit.", REMEDY_TREE],
        endings::eof_tree,
    )
    .over(Over::Stdio),
    check(
        "sigterm-exit",
        Group::Endings,
        "UPS-07",
        Needs::Nothing,
        ["exits on SIGTERM", "Sends SIGTERM to the server alone during a call, and waits for the exit.", "handle SIGTERM, and exit also while a call runs"],
        endings::sigterm_exit,
    )
    .over(Over::Command),
    check(
        "sigterm-tree",
        Group::Endings,
        "STOP-01",
        Needs::Nothing,
        ["leaves no process on SIGTERM", "Lists the processes one second after that exit.", REMEDY_TREE],
        endings::sigterm_tree,
    )
    .over(Over::Command),
    check(
        "killed-exit",
        Group::Endings,
        "UPS-07",
        Needs::Nothing,
        ["exits when its client is killed", "Closes both pipes at once during a call, as the kernel does when it kills a client.", REMEDY_EXIT],
        endings::killed_exit,
    )
    .over(Over::Stdio),
    check(
        "killed-tree",
        Group::Endings,
        "STOP-01",
        Needs::Nothing,
        ["leaves no process when its client is killed", "Lists the processes one second after that exit.", REMEDY_TREE],
        endings::killed_tree,
    )
    .over(Over::Stdio),
    check(
        "task-lifecycle",
        Group::Tasks,
        "TSK-07, TSK-14",
        Needs::Tasks,
        ["creates, completes and returns a task", "Creates a task, polls it, and reads its result. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::lifecycle,
    ),
    check(
        "task-cancel",
        Group::Tasks,
        "TSK-24, TSK-26",
        Needs::Tasks,
        ["cancels a task at once and for good", "Cancels a task, and looks at its status at once and later. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::cancelled,
    ),
    check(
        "task-cancel-result",
        Group::Tasks,
        "TSK-17",
        Needs::Tasks,
        ["answers tasks/result of a cancelled task", "Asks for the result of a cancelled task. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::cancelled_result,
    ),
    check(
        "task-cancel-work",
        Group::Tasks,
        "TSK-25",
        Needs::Tasks,
        ["ends the work of a cancelled task", "Observes processes, CPU time and writes of a task before and after `tasks/cancel`. Needs declared tasks and both calls.", REMEDY_WORK],
        tasks::cancelled_work,
    )
    .over(Over::Command),
    check(
        "task-waiters",
        Group::Tasks,
        "TSK-15",
        Needs::Tasks,
        ["answers two waiters for a result", "Sends two `tasks/result` requests and a `tasks/get` while the task runs. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::waiters,
    ),
    check(
        "task-waiter-cancel",
        Group::Tasks,
        "CAN-15",
        Needs::Tasks,
        ["keeps a task whose waiter is cancelled", "Cancels a `tasks/result` request, and looks at the task. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::waiter_cancelled,
    ),
    check(
        "task-notification",
        Group::Tasks,
        "CAN-05",
        Needs::Tasks,
        ["keeps a task on notifications/cancelled", "Names the request that created a task in `notifications/cancelled`, and looks at the task. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::notification,
    ),
    check(
        "task-ttl",
        Group::Tasks,
        "TSK-34",
        Needs::Tasks,
        ["states the actual ttl of a task", "Reads `ttl` of a new task and of `tasks/get`: a number or null. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::ttl,
    ),
    check(
        "task-pages",
        Group::Tasks,
        "TSK-19, TSK-21",
        Needs::Tasks,
        ["lists each task once", "Creates three tasks and reads all pages of `tasks/list`. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::pages,
    ),
    check(
        "task-foreign",
        Group::Tasks,
        "TSK-27",
        Needs::Tasks,
        ["refuses an unknown task id", "Names an unknown task in `tasks/get`, `tasks/result` and `tasks/cancel`; expects -32602. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::foreign,
    ),
    check(
        "task-cursor",
        Group::Tasks,
        "TSK-22",
        Needs::Tasks,
        ["refuses an unknown cursor", "Sends an unknown cursor; expects -32602. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::cursor,
    ),
    check(
        "task-terminal",
        Group::Tasks,
        "TSK-23",
        Needs::Tasks,
        ["refuses to cancel a terminal task", "Cancels a completed task; expects -32602. Needs declared tasks and both calls.", REMEDY_TASK],
        tasks::terminal,
    ),
    check(
        "task-restart",
        Group::Tasks,
        "DUR-01",
        Needs::Restart,
        ["keeps its tasks when it is killed", "With `--restart`: completes one task, starts another, kills the server, starts the command again, and reads both. Needs declared tasks and both calls.", "store a task before its creation is answered"],
        tasks::restart,
    )
    .over(Over::Command),
    check(
        "extension-lifecycle",
        Group::Extension,
        "EXT-02, EXT-06",
        Needs::Extension,
        ["creates and completes a task of the extension", "Calls the tool in revision 2026-07-28 with the extension declared, and polls the task. Needs the declared extension and both calls.", REMEDY_EXTENSION],
        extension::lifecycle,
    ),
    check(
        "extension-cancel",
        Group::Extension,
        "EXT-04",
        Needs::Extension,
        ["cancels a task of the extension", "Cancels such a task twice. Needs the declared extension and both calls.", REMEDY_EXTENSION],
        extension::cancelled,
    ),
    check(
        "extension-foreign",
        Group::Extension,
        "EXT-04",
        Needs::Extension,
        ["refuses an unknown id of the extension", "Names an unknown task; expects -32602. Needs the declared extension and both calls.", REMEDY_EXTENSION],
        extension::foreign,
    ),
    check(
        "extension-undeclared",
        Group::Extension,
        "EXT-01",
        Needs::Extension,
        ["refuses a request that does not declare the extension", "Asks for a task without declaring the extension; expects -32021. Needs the declared extension and both calls.", REMEDY_EXTENSION],
        extension::undeclared,
    ),
    check(
        "http-answer-end",
        Group::Http,
        "HTTP-03",
        Needs::Nothing,
        ["ends the response after the answer", "Over HTTP: asks for the tools, and waits for the end of the response.", "close the stream of a request after its answer"],
        http_streams::answer_end,
    )
    .over(Over::Http),
    check(
        "http-cancel-end",
        Group::Http,
        "HTTP-07",
        Needs::Tool,
        ["ends the response of a cancelled request", "Over HTTP with sessions: cancels a call after 300 ms, and waits for the end of its response. Needs a call that takes long.", "close the stream of a cancelled request"],
        http_streams::cancel_end,
    )
    .over(Over::HttpSession),
    check(
        "http-disconnect",
        Group::Http,
        "HTTP-07",
        Needs::Tool,
        ["takes a disconnect for no cancel", "Over HTTP with sessions: closes the connection of a call, and observes processes, CPU time and writes, which must go on. Needs a call that takes long and a command.",
            "let a call go on when its connection is closed: only notifications/cancelled cancels it",
        ],
        http_streams::disconnect,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-posted-cancel",
        Group::Http,
        "MOD-06, HTTP-08",
        Needs::Brief,
        ["takes a posted cancel for none", "Over HTTP in 2026-07-28: posts a cancel of a running call, and waits for its result. Needs both calls.",
            "ignore a posted notifications/cancelled: the end of the stream is the cancel",
        ],
        http_streams::posted_cancel,
    )
    .over(Over::HttpStateless),
    check(
        "http-notification",
        Group::Http,
        "HTTP-03",
        Needs::Nothing,
        ["answers a notification with 202", "Over HTTP: posts a notification; expects 202 without a body.", "answer an accepted notification with 202 and no body"],
        http_requests::notification,
    )
    .over(Over::Http),
    check(
        "http-origin",
        Group::Http,
        "HTTP-02",
        Needs::Nothing,
        ["refuses a foreign Origin", "Over HTTP: pings with `Origin: http://elsewhere.example`; expects 403.",
            "refuse a request whose Origin is not allowed with 403, against DNS rebinding",
        ],
        http_requests::origin,
    )
    .over(Over::Http),
    check(
        "http-two-lengths",
        Group::Http,
        "HTTP-10",
        Needs::Nothing,
        ["refuses two lengths of one body", "Over HTTP: pings with two unequal `Content-Length` headers; expects 400. A connection that is closed without a response is unknown.", "refuse two unequal Content-Length headers with 400"],
        http_requests::two_lengths,
    )
    .over(Over::Http),
    check(
        "http-version",
        Group::Http,
        "HTTP-05, HTTP-09",
        Needs::Nothing,
        ["refuses an unknown version", "Over HTTP: pings with `MCP-Protocol-Version: 1999-01-01`; expects 400.", "refuse an unsupported MCP-Protocol-Version with 400"],
        http_requests::version,
    )
    .over(Over::Http),
    check(
        "http-session-unknown",
        Group::Http,
        "HTTP-04",
        Needs::Nothing,
        ["refuses an unknown session", "Over HTTP with sessions: pings with an unknown `Mcp-Session-Id` and without one; expects 404 and 400.",
            "refuse an unknown Mcp-Session-Id with 404, and a missing one with 400",
        ],
        http_requests::session_unknown,
    )
    .over(Over::HttpSession),
    check(
        "http-session-delete",
        Group::Http,
        "HTTP-04",
        Needs::Nothing,
        ["ends a session on DELETE", "Over HTTP with sessions: ends the session with DELETE, and pings; expects 404.", "refuse the id of an ended session with 404"],
        http_requests::session_delete,
    )
    .over(Over::HttpSession),
    check(
        "http-session-work",
        Group::Http,
        "HTTP-04, STOP-01",
        Needs::Tool,
        ["ends the calls of an ended session", "Over HTTP with sessions: ends the session during a call, and observes processes, CPU time and writes. Needs a call that takes long and a command.", "cancel the calls of a session that DELETE ends"],
        http_streams::session_work,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-session-freed",
        Group::Http,
        "HTTP-04",
        Needs::Nothing,
        ["frees ended sessions", "Over HTTP with sessions: opens and ends 40 sessions, and compares the number of open descriptors. Needs a command.", "free everything that a session holds when DELETE ends it"],
        http_requests::session_freed,
    )
    .over(Over::HttpSessionCommand),
    check(
        "http-headers",
        Group::Http,
        "HTTP-09",
        Needs::Nothing,
        ["refuses headers that do not equal the body", "Over HTTP in 2026-07-28: pings without `Mcp-Method` and with another one; expects 400, and -32020.",
            "refuse a missing or wrong Mcp-Method with 400 and -32020",
        ],
        http_requests::headers,
    )
    .over(Over::HttpStateless),
    check(
        "http-unknown-method",
        Group::Http,
        "HTTP-09",
        Needs::Nothing,
        ["answers an unknown method with 404", "Over HTTP in 2026-07-28: calls a method that does not exist; expects 404 and -32601.", "answer an unknown method with 404 and -32601"],
        http_requests::unknown_method,
    )
    .over(Over::HttpStateless),
    check(
        "http-get",
        Group::Http,
        "HTTP-01",
        Needs::Nothing,
        ["refuses GET", "Over HTTP in 2026-07-28: sends GET; expects 405.", "refuse GET without a session with 405"],
        http_requests::get,
    )
    .over(Over::HttpStateless),
];
