//! The table of checks of an agent, in the order of the report.

use super::checks::{messages, turns, work};
use super::context::Context;
use crate::probe::endings;
use crate::probe::finding::Finding;
use crate::probe::session::Trouble;
use crate::probe::suite::Check;

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
    rule: &'static str,
    title: &'static str,
    remedy: &'static str,
    run: fn(&Context) -> Result<Finding, Trouble>,
) -> Check<Context> {
    Check { id, rule, needs: (), title, remedy, run }
}

/// All checks.
pub(super) const CHECKS: &[Check<Context>] = &[
    check(
        HANDSHAKE,
        "RPC-04",
        "answers initialize",
        "answer the first request; a line on stderr may give the reason",
        messages::handshake,
    ),
    check(
        "agent-version",
        "RPC-04",
        "answers an unknown version with its newest",
        "answer initialize with the newest version that the agent speaks",
        messages::version,
    ),
    check(
        "agent-stdout",
        "UPS-14",
        "prints messages only on stdout",
        "print logs and banners on stderr",
        messages::stdout,
    ),
    check(
        "agent-initialize-cancel",
        "ACP-04",
        "answers initialize although it is cancelled",
        "ignore a cancel that names initialize",
        messages::initialize_cancel,
    ),
    check(
        "agent-cancel-unknown",
        "ACP-08",
        "ignores a cancel of an unknown request",
        REMEDY_IGNORE,
        messages::cancel_unknown,
    ),
    check(
        "agent-cancel-answered",
        "ACP-08",
        "ignores a cancel of an answered request",
        REMEDY_IGNORE,
        messages::cancel_answered,
    ),
    check(
        "agent-cancel-malformed",
        "ACP-10",
        "ignores a malformed cancel",
        REMEDY_IGNORE,
        messages::cancel_malformed,
    ),
    check(
        "agent-cancel-no-session",
        "ACP-08",
        "ignores a cancel of an unknown session",
        REMEDY_IGNORE,
        messages::cancel_no_session,
    ),
    check(
        "agent-cancel-spellings",
        "ACP-01, ACP-10",
        "heeds or ignores the cancels of earlier drafts",
        "treat $/cancelRequest as $/cancel_request, or ignore it",
        turns::spellings,
    ),
    check(
        "agent-unknown-method",
        "RPC-01",
        "refuses unknown requests and ignores unknown notifications",
        "answer an unknown request with -32601, and no notification",
        messages::unknown_method,
    ),
    check(
        "agent-parse-error",
        "RPC-01",
        "goes on after a line that is no JSON",
        "answer such a line with -32700 and id null, and read on",
        messages::parse_error,
    ),
    check(
        "agent-id-forms",
        "RPC-01",
        "returns ids of every form as they are",
        REMEDY_ID,
        messages::id_forms,
    ),
    check(
        "agent-id-duplicate",
        "RPC-02",
        "answers the first of two requests with one id",
        "refuse a request whose id is in flight with -32600",
        turns::duplicate,
    ),
    check(
        "agent-turn-cancel",
        "ACP-12",
        "ends a turn on session/cancel with stopReason cancelled",
        REMEDY_TURN,
        turns::cancel,
    ),
    check(
        "agent-turn-one-answer",
        "ACP-06",
        "answers a cancelled prompt once",
        REMEDY_TURN,
        turns::one_answer,
    ),
    check(
        "agent-turn-late-updates",
        "ACP-05",
        "sends no update of a turn after its end",
        "send what is left of a turn before its end",
        turns::late_updates,
    ),
    check(
        "agent-request-cancel",
        "ACP-06",
        "answers a prompt cancelled by $/cancel_request once, with -32800 or stopReason cancelled",
        "answer the request with error -32800, or with stopReason cancelled",
        turns::by_request,
    ),
    check(
        "agent-cancel-both",
        "ACP-12",
        "answers once when both cancels name a turn",
        REMEDY_TURN,
        turns::both,
    ),
    check(
        "agent-cancel-early",
        "CAN-11",
        "heeds a cancel that comes together with its prompt",
        "register a turn before it is queued, so that a cancel finds it",
        turns::early,
    ),
    check(
        "agent-cancel-idle",
        "SUP-04",
        "runs the turn after a cancel without a turn",
        "apply a cancel to the turn that is live when it arrives",
        turns::idle,
    ),
    check(
        "agent-next-turn",
        "ACP-09",
        "runs a turn after a cancelled one",
        "free what the cancelled turn held of its session",
        turns::next,
    ),
    check(
        "agent-other-session",
        "ACP-12",
        "lets the turn of another session run on",
        "cancel the turn of the session that session/cancel names",
        turns::other_session,
    ),
    check(
        "agent-question",
        "ACP-09",
        "ends a cancelled turn that waits for permission",
        "stop waiting for the client once the turn is cancelled",
        turns::question,
    ),
    check(
        "agent-work-processes",
        "ACP-05, STOP-01",
        "ends the processes of a cancelled turn",
        "pass the cancel on to the work of the turn, or start the agent with `ceased wrap --acp --`",
        work::processes_end,
    ),
    check("agent-eof-exit", "SUP-03", "exits when its input ends", REMEDY_EXIT, endings::eof_exit),
    check(
        "agent-eof-tree",
        "STOP-01",
        "leaves no process when its input ends",
        REMEDY_TREE,
        endings::eof_tree,
    ),
    check("agent-sigterm-exit", "SUP-03", "exits on SIGTERM", REMEDY_EXIT, endings::sigterm_exit),
    check(
        "agent-sigterm-tree",
        "STOP-01",
        "leaves no process on SIGTERM",
        REMEDY_TREE,
        endings::sigterm_tree,
    ),
    check(
        "agent-killed-exit",
        "SUP-03",
        "exits when its client is killed",
        REMEDY_EXIT,
        endings::killed_exit,
    ),
    check(
        "agent-killed-tree",
        "STOP-01",
        "leaves no process when its client is killed",
        REMEDY_TREE,
        endings::killed_tree,
    ),
    check(
        "agent-v2-turn-cancel",
        "ACP-12",
        "ends a turn of version 2 with an idle state and stopReason cancelled",
        "report the idle state with stopReason cancelled once the turn has stopped",
        turns::cancel_v2,
    ),
    check(
        "agent-v2-id-null",
        "RPC-02",
        "refuses the id null in version 2",
        "answer a request with the id null with -32600",
        messages::id_null,
    ),
];
