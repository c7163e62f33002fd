//! The table of checks of an agent, in the order of the report.

use super::checks::{messages, pieces, turns, work};
use super::context::Context;
use crate::about::{About, Group};
use crate::endings;
use crate::finding::{Finding, SessionError};
use crate::suite::Check;

/// The check of the handshake, which is done before all others.
pub(super) const HANDSHAKE: &str = "agent-handshake";

const REMEDY_IGNORE: &str = "ignore a cancel that names nothing in progress, without an answer";
const REMEDY_ID: &str = "keep the id of a request as the JSON value that it is";
const REMEDY_TURN: &str =
    "answer the prompt once, with stopReason cancelled, as soon as the turn has stopped";
const REMEDY_EXIT: &str = "exit when standard input ends and on SIGTERM, also during a turn";
const REMEDY_TREE: &str = "end the processes of running turns before exiting, or start the agent with `ceased wrap --acp --`";

const fn check(
    id: &'static str,
    group: Group,
    rule: &'static str,
    [title, method, remedy]: [&'static str; 3],
    run: fn(&Context) -> Result<Finding, SessionError>,
) -> Check<Context> {
    Check { about: About { id, group, rule, title, method, remedy }, needs: (), run }
}

/// All checks.
pub(super) const CHECKS: &[Check<Context>] = &[
    check(
        HANDSHAKE,
        Group::Handshake,
        "RPC-04",
        [
            "answers initialize",
            "Sends `initialize`.",
            "answer the first request; a line on stderr may give the reason",
        ],
        messages::handshake,
    ),
    check(
        "agent-version",
        Group::Handshake,
        "RPC-04",
        [
            "answers an unknown version with its newest",
            "Asks for version 65535. The answer must have a lower one.",
            "answer initialize with the newest version that the agent speaks",
        ],
        messages::version,
    ),
    check(
        "agent-stdout",
        Group::Handshake,
        "UPS-14",
        [
            "prints messages only on stdout",
            "Begins and cancels a turn. A line on standard output that is no JSON object deviates.",
            "print logs and banners on stderr",
        ],
        messages::stdout,
    ),
    check(
        "agent-initialize-cancel",
        Group::Handshake,
        "ACP-04",
        [
            "answers initialize although it is cancelled",
            "Sends `initialize` and a `$/cancel_request` of it in one write.",
            "ignore a cancel that names initialize",
        ],
        messages::initialize_cancel,
    ),
    check(
        "agent-cancel-unknown",
        Group::Messages,
        "ACP-08",
        [
            "ignores a cancel of an unknown request",
            "Sends `$/cancel_request` with three ids that were never used, and a request after each.",
            REMEDY_IGNORE,
        ],
        messages::cancel_unknown,
    ),
    check(
        "agent-cancel-answered",
        Group::Messages,
        "ACP-08",
        [
            "ignores a cancel of an answered request",
            "Sends `$/cancel_request` of an answered request.",
            REMEDY_IGNORE,
        ],
        messages::cancel_answered,
    ),
    check(
        "agent-cancel-malformed",
        Group::Messages,
        "ACP-10",
        [
            "ignores a malformed cancel",
            "Sends six malformed `$/cancel_request` notifications, and a request after each.",
            REMEDY_IGNORE,
        ],
        messages::cancel_malformed,
    ),
    check(
        "agent-cancel-no-session",
        Group::Messages,
        "ACP-08",
        [
            "ignores a cancel of an unknown session",
            "Sends `session/cancel` of a session that does not exist.",
            REMEDY_IGNORE,
        ],
        messages::cancel_no_session,
    ),
    check(
        "agent-cancel-spellings",
        Group::Calls,
        "ACP-01, ACP-10",
        [
            "heeds or ignores the cancels of earlier drafts",
            "Sends `$/cancelRequest` with `id`, and with `requestId`, during a turn. The turn may run on; an answer to the notification deviates.",
            "treat $/cancelRequest as $/cancel_request, or ignore it",
        ],
        turns::spellings,
    ),
    check(
        "agent-unknown-method",
        Group::Messages,
        "RPC-01",
        [
            "refuses unknown requests and ignores unknown notifications",
            "Sends a request of an unknown extension, expects -32601, and sends two unknown notifications.",
            "answer an unknown request with -32601, and no notification",
        ],
        messages::unknown_method,
    ),
    check(
        "agent-parse-error",
        Group::Messages,
        "RPC-01",
        [
            "goes on after a line that is no JSON",
            "Sends a line that is no JSON, and a request.",
            "answer such a line with -32700 and id null, and read on",
        ],
        messages::parse_error,
    ),
    check(
        "agent-id-forms",
        Group::Messages,
        "RPC-01",
        [
            "returns ids of every form as they are",
            "Sends requests with the ids `0`, `\"\"`, `1`, `\"1\"`, `-7`, 2^53 - 1 and a string with quotes, all at once.",
            REMEDY_ID,
        ],
        messages::id_forms,
    ),
    check(
        "agent-id-duplicate",
        Group::Calls,
        "RPC-02",
        [
            "answers the first of two requests with one id",
            "Sends a request with the id of a running prompt, cancels the turn, and waits for the answer of the prompt.",
            "refuse a request whose id is in flight with -32600",
        ],
        turns::duplicate,
    ),
    check(
        "agent-turn-cancel",
        Group::Calls,
        "ACP-12",
        [
            "ends a turn on session/cancel with stopReason cancelled",
            "Cancels a turn. Repeats up to three times if the turn ends by itself before the cancel.",
            REMEDY_TURN,
        ],
        turns::cancel,
    ),
    check(
        "agent-turn-one-answer",
        Group::Calls,
        "ACP-06",
        [
            "answers a cancelled prompt once",
            "Cancels a turn, and counts the answers until `--window` after its end.",
            REMEDY_TURN,
        ],
        turns::one_answer,
    ),
    check(
        "agent-turn-late-updates",
        Group::Calls,
        "ACP-05",
        [
            "sends no update of a turn after its end",
            "Cancels a turn, and watches for messages, thoughts, tool calls and plans after its end.",
            "send what is left of a turn before its end",
        ],
        turns::late_updates,
    ),
    check(
        "agent-request-cancel",
        Group::Calls,
        "ACP-06",
        [
            "answers a prompt cancelled by $/cancel_request once, with -32800 or stopReason cancelled",
            "Sends `$/cancel_request` of the prompt. An agent may ignore it, which is unknown.",
            "answer the request with error -32800, or with stopReason cancelled",
        ],
        turns::by_request,
    ),
    check(
        "agent-cancel-both",
        Group::Calls,
        "ACP-12",
        [
            "answers once when both cancels name a turn",
            "Sends `session/cancel` and `$/cancel_request` in one write.",
            REMEDY_TURN,
        ],
        turns::both,
    ),
    check(
        "agent-cancel-early",
        Group::Calls,
        "CAN-11",
        [
            "heeds a cancel that comes together with its prompt",
            "Sends a prompt and `session/cancel` in one write.",
            "register a turn before it is queued, so that a cancel finds it",
        ],
        turns::early,
    ),
    check(
        "agent-cancel-idle",
        Group::Calls,
        "SUP-04",
        [
            "runs the turn after a cancel without a turn",
            "Sends `session/cancel` in a session without a turn, and begins one.",
            "apply a cancel to the turn that is live when it arrives",
        ],
        turns::idle,
    ),
    check(
        "agent-next-turn",
        Group::Calls,
        "ACP-09",
        [
            "runs a turn after a cancelled one",
            "Begins a second turn after a cancelled one, and cancels it as well.",
            "free what the cancelled turn held of its session",
        ],
        turns::next,
    ),
    check(
        "agent-other-session",
        Group::Calls,
        "ACP-12",
        [
            "lets the turn of another session run on",
            "Runs turns in two sessions, and cancels one of them.",
            "cancel the turn of the session that session/cancel names",
        ],
        turns::other_session,
    ),
    check(
        "agent-question",
        Group::Calls,
        "ACP-09",
        [
            "ends a cancelled turn that waits for permission",
            "Waits for `session/request_permission`, cancels the turn, and answers the question with `cancelled`. Needs `--question-prompt`.",
            "stop waiting for the client once the turn is cancelled",
        ],
        turns::question,
    ),
    check(
        "agent-work-processes",
        Group::Work,
        "ACP-05, STOP-01",
        [
            "ends the processes of a cancelled turn",
            "Lists the processes of the contained job before the turn, during it and after its cancel, until the time limit. Permits everything that the agent asks for.",
            "pass the cancel on to the work of the turn, or start the agent with `ceased wrap --acp --`",
        ],
        work::processes_end,
    ),
    check(
        "agent-eof-exit",
        Group::Endings,
        "SUP-03",
        [
            "exits when its input ends",
            "Closes standard input during a turn, and waits for the exit.",
            REMEDY_EXIT,
        ],
        endings::eof_exit,
    ),
    check(
        "agent-eof-tree",
        Group::Endings,
        "STOP-01",
        [
            "leaves no process when its input ends",
            "Lists the processes one second after that exit.",
            REMEDY_TREE,
        ],
        endings::eof_tree,
    ),
    check(
        "agent-sigterm-exit",
        Group::Endings,
        "SUP-03",
        [
            "exits on SIGTERM",
            "Sends SIGTERM to the agent alone during a turn, and waits for the exit.",
            REMEDY_EXIT,
        ],
        endings::sigterm_exit,
    ),
    check(
        "agent-sigterm-tree",
        Group::Endings,
        "STOP-01",
        [
            "leaves no process on SIGTERM",
            "Lists the processes one second after that exit.",
            REMEDY_TREE,
        ],
        endings::sigterm_tree,
    ),
    check(
        "agent-killed-exit",
        Group::Endings,
        "SUP-03",
        [
            "exits when its client is killed",
            "Closes both pipes at once during a turn, as the kernel does when it kills a client.",
            REMEDY_EXIT,
        ],
        endings::killed_exit,
    ),
    check(
        "agent-killed-tree",
        Group::Endings,
        "STOP-01",
        [
            "leaves no process when its client is killed",
            "Lists the processes one second after that exit.",
            REMEDY_TREE,
        ],
        endings::killed_tree,
    ),
    check(
        "agent-v2-turn-cancel",
        Group::Calls,
        "ACP-12",
        [
            "ends a turn of version 2 with an idle state and stopReason cancelled",
            "Cancels a turn of version 2, whose end is a `state_update` to `idle`.",
            "report the idle state with stopReason cancelled once the turn has stopped",
        ],
        turns::cancel_v2,
    ),
    check(
        "agent-v2-id-null",
        Group::Messages,
        "RPC-02",
        [
            "refuses the id null in version 2",
            "Sends a request with the id `null` in version 2; expects -32600.",
            "answer a request with the id null with -32600",
        ],
        messages::id_null,
    ),
    check(
        "agent-v2-tool-call-cancel",
        Group::Calls,
        "SUP-06",
        [
            "ends a tool call that is cancelled by itself",
            "Begins a turn of version 2, waits for a tool call with `capabilities.cancel`, sends `tool_call/cancel`, and waits for the answer and for a final status. Needs a prompt that starts one (`--work-prompt`).",
            "accept the cancel, stop the work, and report the tool call with a final status",
        ],
        pieces::cancel_tool_call,
    ),
    check(
        "agent-v2-terminal-cancel",
        Group::Calls,
        "SUP-06",
        [
            "ends a terminal that is cancelled by itself",
            "Begins a turn of version 2, waits for a terminal with `capabilities.cancel`, sends `terminal/cancel`, and waits for the answer and for an `exitStatus`. Needs a prompt that starts one (`--work-prompt`).",
            "accept the cancel, stop the processes, and report the terminal with an exitStatus",
        ],
        pieces::cancel_terminal,
    ),
    check(
        "agent-v2-cancel-no-piece",
        Group::Messages,
        "SUP-06",
        [
            "refuses to cancel a tool call or terminal that is not there",
            "Sends `tool_call/cancel` and `terminal/cancel` with unknown ids in version 2; expects -32602.",
            "answer a cancel of an unknown piece with -32602",
        ],
        pieces::cancel_of_nothing,
    ),
    check(
        "agent-v2-background-spared",
        Group::Work,
        "SUP-05",
        [
            "spares background work when a turn is cancelled",
            "Waits for a turn of version 2 that leaves background work, cancels the next turn, and compares the lists of background work and its processes. Needs `--background-prompt`.",
            "stop the work of the turn alone, and list background work in each state_update",
        ],
        pieces::background_is_spared,
    ),
    check(
        "agent-v2-background-closed",
        Group::Work,
        "SUP-05, STOP-01",
        [
            "ends background work when its session is closed",
            "Waits for a turn of version 2 that leaves background work with a process, sends `session/close`, and waits for the end of that process. Needs `--background-prompt`.",
            "end the background work of a session before answering session/close",
        ],
        pieces::background_is_closed,
    ),
];
