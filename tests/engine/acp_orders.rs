//! ACP, every order of events of a request: one answer, and the right one.

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason};
use ceased_core::event::Outcome;
use ceased_core::rpc::error::ErrorObject;
use ceased_simulator::acp::{cancel, cancelled, nothing_is_left};
use ceased_simulator::tools::ABANDON_AFTER;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, result_of};
use serde_json::{Value, json};

/// An event of a running request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    PeerCancels,
    PeerCancelsAgain,
    HostCancels,
    SessionCancel,
    GraceEnds,
    JobEnds,
}

/// Every order of `events`.
fn orders(events: &[Happens]) -> Vec<Vec<Happens>> {
    if events.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for (position, first) in events.iter().enumerate() {
        let mut rest = events.to_vec();
        rest.remove(position);
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

/// Canceller of a request, as the model sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Canceller {
    Nobody,
    Feature,
    Peer,
    Host,
}

/// The error of a cancelled request.
fn refusal(by: Canceller) -> Option<Value> {
    let source = match by {
        Canceller::Nobody => return None,
        Canceller::Feature => Some("feature"),
        Canceller::Peer => None,
        Canceller::Host => Some("host"),
    };
    Some(cancelled(AcpForm::Published, &json!(1), source))
}

/// The answer to a request whose job ends like this.
fn ending(outcome: &Outcome, by: Canceller) -> Value {
    let error = |code: i64, message: &str| {
        let error = json!({"code": code, "message": message});
        json!({"jsonrpc": "2.0", "id": 1, "error": error})
    };
    match (outcome, by) {
        (Outcome::Result(result), _) => {
            let result: Value = serde_json::from_str(result.get()).expect("a result is JSON");
            json!({"jsonrpc": "2.0", "id": 1, "result": result})
        }
        (Outcome::Error(own) | Outcome::Refused(own), Canceller::Nobody | Canceller::Feature) => {
            error(own.code, &own.message)
        }
        (Outcome::Error(_) | Outcome::Refused(_) | Outcome::Stopped, by) => {
            refusal(by).unwrap_or_else(|| error(-32603, "the service gave no answer"))
        }
    }
}

/// The answer to a request after these events in this order: the whole rule.
fn model(order: &[Happens], outcome: &Outcome, killable: bool) -> Value {
    let mut by = Canceller::Nobody;
    for happens in order {
        let open = matches!(by, Canceller::Nobody | Canceller::Feature);
        match happens {
            Happens::PeerCancels | Happens::PeerCancelsAgain if open => by = Canceller::Peer,
            Happens::HostCancels if open => by = Canceller::Host,
            Happens::SessionCancel if by == Canceller::Nobody => by = Canceller::Feature,
            // Processes that are asked to give their own answer are waited for.
            Happens::GraceEnds if killable && open => {}
            Happens::GraceEnds => {
                if let Some(refusal) = refusal(by) {
                    return refusal;
                }
            }
            Happens::JobEnds => return ending(outcome, by),
            Happens::PeerCancels
            | Happens::PeerCancelsAgain
            | Happens::HostCancels
            | Happens::SessionCancel => {}
        }
    }
    unreachable!("the job ends in every order");
}

/// ACP-06, ACP-07, ACP-08, ACP-12: every order of everything that can happen to a request, with
/// every outcome and both ladders: one answer, the right one, and nothing left.
#[test]
fn one_answer_in_every_order() {
    let events = [
        Happens::PeerCancels,
        Happens::PeerCancelsAgain,
        Happens::HostCancels,
        Happens::SessionCancel,
        Happens::GraceEnds,
        Happens::JobEnds,
    ];
    let outcomes = [
        result_of(&json!({"part": 1})),
        Outcome::Error(ErrorObject::new(7, "own")),
        Outcome::Stopped,
    ];
    let mut cases = 0;
    for order in orders(&events) {
        for outcome in &outcomes {
            for (killable, method) in
                [(false, "fs/read_text_file"), (true, "terminal/wait_for_exit")]
            {
                let mut w = World::new();
                let c = w.open_acp(AcpForm::Published, AcpRole::Client);
                let job = w.request(c, json!(1), method, json!({}));
                for happens in &order {
                    match happens {
                        Happens::PeerCancels | Happens::PeerCancelsAgain => {
                            cancel(&mut w, c, &json!(1));
                        }
                        Happens::HostCancels => w.feed(Input::CancelJob(job, HostStopReason::Host)),
                        Happens::SessionCancel => {
                            w.feed(Input::CancelJob(job, HostStopReason::Feature));
                        }
                        Happens::GraceEnds => w.advance(ABANDON_AFTER),
                        Happens::JobEnds => w.end(job, outcome.clone()),
                    }
                }
                let answers = w.rest(c);
                assert_eq!(
                    answers,
                    [model(&order, outcome, killable)],
                    "{order:?} {outcome:?} {method}"
                );
                nothing_is_left(&w);
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 720 * 3 * 2);
}
