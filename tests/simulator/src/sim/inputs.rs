//! From steps to the events of a host.

use std::time::Duration;

use ceased_core::acp::protocol::HostStopReason;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId};
use ceased_core::outgoing::call::{AnswerTimeout, AskTask, OutgoingRequest};
use ceased_core::protocol::role::{AsClient, Offers, Role};
use ceased_core::rpc::frame::Frame;
use serde_json::json;

use super::step::{Why, Wish};
use crate::trace::Input;
use crate::world::raw_json;

pub(super) const fn identity(user: u32) -> Identity {
    if user < 3 { Identity::User(user) } else { Identity::Anonymous }
}

pub(super) fn as_client(
    call: u64,
    offers: (bool, bool, bool),
    answer_timeout: Option<u64>,
) -> Role {
    let (sampling, elicitation, roots) = offers;
    let answer_timeout = answer_timeout.map(Duration::from_nanos).map(|timeout| AnswerTimeout {
        timeout,
        cap: timeout,
        extend_on_progress: false,
    });
    let offers = Offers { sampling, elicitation, roots };
    Role::Client(AsClient { ask: AskId::new(call), offers, answer_timeout })
}

pub(super) fn ask_of(call: u64, wish: &Wish) -> OutgoingRequest {
    let answer_timeout =
        wish.answer_timeout.map(|(timeout, cap, extend_on_progress)| AnswerTimeout {
            timeout: Duration::from_nanos(timeout),
            cap: Duration::from_nanos(cap),
            extend_on_progress,
        });
    let mut params = json!({"call": call});
    if wish.method == "initialize" {
        let cancels = !call.is_multiple_of(4);
        params["clientCapabilities"] = json!({"cancellation": {"request": cancels}});
    }
    if let Some(tool) = &wish.tool {
        params["name"] = tool.as_str().into();
    }
    let ttl = |ttl: u64| AskTask { ttl: (ttl > 0).then_some(Duration::from_millis(ttl)) };
    OutgoingRequest {
        key: None,
        method: wish.method.as_str().into(),
        params: Some(raw_json(&params.to_string())),
        answer_timeout,
        task: wish.task.map(ttl),
    }
}

pub(super) fn input_of(conn: ConnId, frame: &Frame<'_>) -> Input {
    match frame {
        Frame::Line(line) => Input::Frame(conn, line.to_vec()),
        Frame::TooLong(skeleton) => Input::TooLong(conn, (*skeleton).to_owned()),
        Frame::NotJsonRpc(bytes) => Input::NotJsonRpc(conn, bytes.to_vec()),
    }
}

pub(super) const fn cause_of(why: Why) -> HostStopReason {
    match why {
        Why::Feature => HostStopReason::Feature,
        Why::Limit => HostStopReason::Limit,
        Why::Host => HostStopReason::Host,
    }
}

/// The number of the call in a text that holds one.
pub(super) fn number_in(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let rest = text.split_once("\"n\":").map_or("", |(_, rest)| rest);
    rest.chars()
        .map_while(|c| c.to_digit(10))
        .fold(0, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit)))
}
