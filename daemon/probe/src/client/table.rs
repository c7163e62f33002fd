//! The table of checks of a client, in the order of the report.

use super::checks;
use super::context::Context;
use crate::about::{About, Group};
use crate::finding::{Finding, SessionError};
use crate::suite::Check;

const REMEDY_CANCEL: &str =
    "send notifications/cancelled with the id of a request that is given up";
const REMEDY_ID: &str = "name the request by the JSON value that it was sent with: 3 is not \"3\"";
const REMEDY_TREE: &str =
    "end the server's whole process tree, or start the server with `ceased wrap --`";

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
        "client-handshake",
        Group::Handshake,
        "RPC-04",
        [
            "begins with a handshake",
            "Looks at the first message to the server: `initialize`, or `server/discover`.",
            "start the server by the command line that the probe gives, and initialize it",
        ],
        checks::handshake,
    ),
    check(
        "client-stdin",
        Group::Handshake,
        "UPS-14",
        [
            "sends messages only",
            "Looks at all lines to the server. A line that is no JSON object deviates.",
            "write one JSON object a line to the server",
        ],
        checks::stdin,
    ),
    check(
        "client-initialize-cancel",
        Group::Handshake,
        "CAN-04",
        [
            "does not cancel initialize",
            "Answers no handshake, until the client gives up. A client that waits for longer than `--timeout` is unknown.",
            "close the server instead of cancelling initialize",
        ],
        checks::initialize_cancel,
    ),
    check(
        "client-abort-cancel",
        Group::Calls,
        "CAN-01",
        [
            "sends a cancel when a call is aborted",
            "Looks for `notifications/cancelled` between the call of `abort` and the call of `echo`. Unknown if the client calls neither or aborts nothing.",
            REMEDY_CANCEL,
        ],
        checks::abort,
    ),
    check(
        "client-abort-id",
        Group::Calls,
        "CAN-01, CAN-02",
        [
            "names the aborted request with type and value of its id",
            "Compares the id of the call with the `requestId` of the cancel.",
            REMEDY_ID,
        ],
        checks::abort_id,
    ),
    check(
        "client-timeout-cancel",
        Group::Calls,
        "CAN-01",
        [
            "sends a cancel when a call runs into a time limit",
            "The same for the call of `timeout`.",
            REMEDY_CANCEL,
        ],
        checks::timeout,
    ),
    check(
        "client-timeout-id",
        Group::Calls,
        "CAN-01, CAN-02",
        [
            "names the overdue request with type and value of its id",
            "Compares the id of the call with the `requestId` of the cancel.",
            REMEDY_ID,
        ],
        checks::timeout_id,
    ),
    check(
        "client-cancel-answered",
        Group::Messages,
        "CAN-03",
        [
            "sends no cancel of an answered request",
            "Looks for a cancel that names a request which the server has answered.",
            "forget a request once it is answered",
        ],
        checks::answered,
    ),
    check(
        "client-ping",
        Group::Calls,
        "RPC-03",
        [
            "answers a ping while a call runs",
            "Sends a ping during the call of `abort`.",
            "read messages of the server while a call waits",
        ],
        checks::ping,
    ),
    check(
        "client-late-answer",
        Group::Calls,
        "CAN-10",
        [
            "ignores an answer that follows its cancel",
            "Answers each cancelled call, with progress before, right after the cancel. The client must go on with `echo`.",
            "drop an answer to a request that was given up",
        ],
        checks::late_answer,
    ),
    check(
        "client-close-server",
        Group::Endings,
        "UPS-07",
        [
            "ends the server when it closes",
            "Looks for the server process until `--timeout` after the client has closed the server's input or exited. The server ends neither at the end of its input nor on SIGTERM.",
            "close the server's input, send SIGTERM, then SIGKILL",
        ],
        checks::close_server,
    ),
    check(
        "client-close-tree",
        Group::Endings,
        "STOP-01",
        [
            "leaves no process of the server when it closes",
            "Looks for the child of the server in the same way.",
            REMEDY_TREE,
        ],
        checks::close_tree,
    ),
    check(
        "client-killed-tree",
        Group::Endings,
        "UPS-07, STOP-01",
        [
            "leaves no process of the server when it is killed",
            "Sends SIGKILL to the command during its first call, and looks for the server and its child until `--timeout`. Unknown if the client says more or keeps the server's input open: it is then another process than the command, such as a program behind a shell.",
            "start the server with `ceased wrap --`",
        ],
        checks::killed_tree,
    ),
    check(
        "client-hang-tree",
        Group::Endings,
        "UPS-07, STOP-01",
        [
            "leaves no process of a server whose handshake hangs",
            "Answers no handshake, and looks for the server and its child once the client has given up.",
            REMEDY_TREE,
        ],
        checks::hanging_tree,
    ),
];
