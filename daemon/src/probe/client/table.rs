//! The table of checks of a client, in the order of the report.

use super::checks;
use super::context::Context;
use crate::probe::finding::Finding;
use crate::probe::session::Trouble;
use crate::probe::suite::Check;

const REMEDY_CANCEL: &str =
    "send notifications/cancelled with the id of a request that is given up";
const REMEDY_ID: &str = "name the request by the JSON value that it was sent with: 3 is not \"3\"";
const REMEDY_TREE: &str =
    "end the server's whole process tree, or start the server with `ceased wrap --`";

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
        "client-handshake",
        "RPC-04",
        "begins with a handshake",
        "start the server by the command line that the probe gives, and initialize it",
        checks::handshake,
    ),
    check(
        "client-stdin",
        "UPS-14",
        "sends messages only",
        "write one JSON object a line to the server",
        checks::stdin,
    ),
    check(
        "client-initialize-cancel",
        "CAN-04",
        "does not cancel initialize",
        "close the server instead of cancelling initialize",
        checks::initialize_cancel,
    ),
    check(
        "client-abort-cancel",
        "CAN-01",
        "sends a cancel when a call is aborted",
        REMEDY_CANCEL,
        checks::abort,
    ),
    check(
        "client-abort-id",
        "CAN-01, CAN-02",
        "names the aborted request with type and value of its id",
        REMEDY_ID,
        checks::abort_id,
    ),
    check(
        "client-timeout-cancel",
        "CAN-01",
        "sends a cancel when a call runs into a time limit",
        REMEDY_CANCEL,
        checks::timeout,
    ),
    check(
        "client-timeout-id",
        "CAN-01, CAN-02",
        "names the overdue request with type and value of its id",
        REMEDY_ID,
        checks::timeout_id,
    ),
    check(
        "client-cancel-answered",
        "CAN-03",
        "sends no cancel of an answered request",
        "forget a request once it is answered",
        checks::answered,
    ),
    check(
        "client-ping",
        "RPC-03",
        "answers a ping while a call runs",
        "read messages of the server while a call waits",
        checks::ping,
    ),
    check(
        "client-late-answer",
        "CAN-10",
        "ignores an answer that follows its cancel",
        "drop an answer to a request that was given up",
        checks::late_answer,
    ),
    check(
        "client-close-server",
        "UPS-07",
        "ends the server when it closes",
        "close the server's input, send SIGTERM, then SIGKILL",
        checks::close_server,
    ),
    check(
        "client-close-tree",
        "STOP-01",
        "leaves no process of the server when it closes",
        REMEDY_TREE,
        checks::close_tree,
    ),
    check(
        "client-killed-tree",
        "UPS-07, STOP-01",
        "leaves no process of the server when it is killed",
        "start the server with `ceased wrap --`",
        checks::killed_tree,
    ),
    check(
        "client-hang-tree",
        "UPS-07, STOP-01",
        "leaves no process of a server whose handshake hangs",
        REMEDY_TREE,
        checks::hanging_tree,
    ),
];
