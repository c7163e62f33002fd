//! Server side of a session: which method goes where, tool calls, cancellation, subscriptions.

pub(crate) mod admission;
pub(crate) mod call_params;
pub(crate) mod cancel;
pub(crate) mod disconnect;
pub(crate) mod held_bytes;
pub(crate) mod host_request;
pub(crate) mod idempotency;
pub(crate) mod input_required;
pub(crate) mod inputs;
pub(crate) mod keyed_calls;
pub(crate) mod operate;
pub(crate) mod outputs;
pub(crate) mod rate;
pub(crate) mod relayed_methods;
pub(crate) mod respond;
pub(crate) mod session;
pub(crate) mod stateless;
pub(crate) mod status;
pub(crate) mod subscriptions;
pub(crate) mod suspended_calls;
pub(crate) mod tools_call;
