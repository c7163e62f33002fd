//! `ceased/reload` and `ceased/shutdown`: orders of an operator to the host.

use crate::action::{Action, OperatorOrder};
use crate::engine::Engine;
use crate::outbox::requests::Reply;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;

impl Engine {
    /// Hands an order to the host and answers at once; a peer that is no operator is refused. The
    /// outcome of a reload is in `ceased/status`.
    pub(crate) fn operate(&mut self, reply: Reply, order: OperatorOrder) {
        let conn = reply.conn;
        let operator =
            self.outbox.identity(conn).cloned().filter(|_| self.outbox.is_operator(conn));
        let Some(identity) = operator else {
            let message = alloc::format!(
                "{} is for operators: root, the user that the daemon runs as, and `operators` of [daemon], each outside of jobs",
                order.method()
            );
            return self.outbox.fail(reply, &ErrorObject::new(code::FORBIDDEN, message));
        };
        self.outbox.push(Action::Operate { conn, identity, order });
        self.answer(reply, |json| {
            json.raw("{}");
        });
    }
}
