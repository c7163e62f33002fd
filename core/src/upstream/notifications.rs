//! Notifications of instances, by method.

use crate::ids::InstanceId;
use crate::outbox::Sender;
use crate::outbox::requests::Topic;
use crate::rpc::params::Params;
use crate::upstream::gateway::Gateway;
use crate::upstream::listen::ACKNOWLEDGED;

impl Gateway<'_> {
    /// Handles a notification that only an instance sends, or that means something else of one.
    pub(crate) fn on_notification(
        &mut self,
        sender: Sender,
        id: InstanceId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        if method == sender.dialect.cancel_method {
            return self.on_cancel_of_upstream(sender.conn, params);
        }
        if let Some(topic) = Topic::of_method(method) {
            return self.on_list_changed(id, topic);
        }
        match method {
            "notifications/resources/updated" => self.on_updated(id, params),
            "notifications/message" => self.on_message_of_upstream(id, params),
            ACKNOWLEDGED => self.on_listen_acknowledged(id, params),
            // The tasks of a server are followed here.
            "notifications/tasks/status" => {}
            _ => self.pass_to_clients(id, method, params),
        }
    }
}
