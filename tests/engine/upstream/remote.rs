//! Servers by URL: proofs of their cancels, lost calls, lost sessions (REM-02 to REM-04).

use std::borrow::Cow;
use std::time::Duration;

use ceased_core::ids::{CallId, InstanceId};
use ceased_core::upstream::interface::{CancelFate, RemoteNews, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::{OnIgnoredCancel, Share, UpstreamServer};
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call, cancel, tool};
use super::{ready, server};

fn remote() -> UpstreamServer {
    UpstreamServer {
        is_remote: true,
        on_ignored_cancel: OnIgnoredCancel::Leave,
        cancel_grace: Duration::from_millis(200),
        ..server("s")
    }
}

fn number(request: &Value) -> CallId {
    CallId::new(request["id"].as_u64().expect("a number"))
}

fn news(kit: &mut Kit, instance: InstanceId, news: RemoteNews<'_>) {
    kit.feed(Event::Upstream(UpstreamEvent::Remote { instance, news }));
}

fn fate(kit: &mut Kit, instance: InstanceId, request: &Value, fate: CancelFate) {
    news(kit, instance, RemoteNews::Cancel { call: number(request), fate });
}

fn lost(kit: &mut Kit, instance: InstanceId, request: &Value, is_unbegun: bool) {
    let why = Cow::Borrowed("the connection was cut");
    news(kit, instance, RemoteNews::CallLost { call: number(request), is_unbegun, why });
}

/// A call that was cancelled, and its request at the server.
fn cancelled(kit: &mut Kit, client: ConnId, upstream: ConnId) -> Value {
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    kit.send(client, &cancel(&json!(1)));
    let told = kit.one(upstream);
    assert_eq!(told["method"], "notifications/cancelled", "the server is not pinged");
    assert_eq!(told["params"]["requestId"], request["id"]);
    request
}

/// REM-03: a receipt claims no more than is known, and no process is looked at.
#[test]
fn every_fate_of_a_cancel_has_its_proof() {
    for (fates, leaves, proof) in [
        (&[CancelFate::Told][..], true, "told"),
        (&[CancelFate::Failed], true, "unknown"),
        (&[], true, "unknown"),
        (&[CancelFate::Unsent], false, "unsent"),
        (&[CancelFate::StreamClosed], false, "stream_closed"),
        (&[CancelFate::Told, CancelFate::StreamEnded], false, "answered"),
    ] {
        let (mut kit, client, upstream, instance) = ready(remote());
        let request = cancelled(&mut kit, client, upstream);
        for it in fates {
            fate(&mut kit, instance, &request, *it);
        }
        if leaves {
            assert_eq!(kit.proof(), None, "{fates:?}");
            kit.pass(200);
        }
        assert_eq!(kit.proof(), Some(proof), "{fates:?}");
        // REM-02: the response is closed, the session stays.
        let UpstreamAction::Forget { call, .. } = kit.want() else { panic!("forget") };
        assert_eq!(call, number(&request));
        assert!(kit.wanted.is_empty());
        kit.silent(client);
    }
}

/// REM-03: an ignored cancel ends a session that no other client uses, if the settings say so.
#[test]
fn ignored_cancel_ends_the_session_of_one_client_alone() {
    for (share, accepts, proof) in [
        (Share::Connection, true, Some("session_ended")),
        (Share::Connection, false, Some("told")),
        (Share::Identity, true, Some("told")),
    ] {
        let on_ignored_cancel = OnIgnoredCancel::Replace;
        let settings = UpstreamServer { on_ignored_cancel, share, ..remote() };
        let (mut kit, client, upstream, instance) = ready(settings);
        let request = cancelled(&mut kit, client, upstream);
        fate(&mut kit, instance, &request, CancelFate::Told);
        kit.pass(200);
        if share == Share::Connection {
            assert_eq!(kit.proof(), None);
            assert!(matches!(kit.want(), UpstreamAction::End { .. }));
            if accepts {
                news(&mut kit, instance, RemoteNews::SessionEnded);
            }
            kit.ended(instance, "", "");
        }
        assert_eq!(kit.proof(), proof);
    }
}

/// REM-04: a call whose answer is lost is not made again unless its tool may be called twice.
#[test]
fn lost_call_has_an_unknown_outcome() {
    let (mut kit, client, upstream, instance) = ready(remote());
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    lost(&mut kit, instance, &request, false);
    kit.silent(upstream);
    let answer = kit.one(client);
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(message.contains("the outcome of the call is unknown"), "{message}");
    assert!(message.contains("the connection was cut"), "{message}");
}

/// REM-04: a call that the server refused with its session is made once more, in a new session.
#[test]
fn unbegun_call_is_sent_again_once() {
    let (mut kit, client, upstream, instance) = ready(remote());
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    news(&mut kit, instance, RemoteNews::SessionLost);
    lost(&mut kit, instance, &request, true);
    let second = kit.starts();
    assert!(matches!(kit.want(), UpstreamAction::End { .. }));
    let upstream = kit.started(second[0]);
    kit.handshake(upstream, &[tool("work")]);
    let sent = kit.early.clone();
    let again = sent.iter().find(|it| it["method"] == "tools/call").expect("the call");
    assert_eq!(again["params"]["name"], "work");
    lost(&mut kit, second[0], again, true);
    let answer = kit.one(client);
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(message.contains("was not begun"), "{message}");
}
