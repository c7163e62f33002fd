//! Calls with an idempotency key: their content and requestor, so that they can be repeated.

use std::collections::VecDeque;

use serde_json::Value;

use super::peer::{Peer, Scene};

/// How many calls are remembered.
const CALLS_MAX: usize = 24;

/// One call that had a key.
struct Call {
    identity: String,
    /// It spoke for itself.
    stateless: bool,
    number: u64,
    tool: &'static str,
    /// Without its token.
    params: Value,
}

/// The calls with a key that were made last, by anybody.
#[derive(Default)]
pub(super) struct Repeats(VecDeque<Call>);

impl Peer {
    /// Gives a call a key, or makes it a repetition of an earlier one of the same identity: any of
    /// its connections may ask again. The number of the call it comes to, and its tool.
    pub(super) fn once(
        &self,
        scene: &mut Scene<'_>,
        number: u64,
        tool: &'static str,
        params: &mut Value,
    ) -> (u64, &'static str) {
        let oracle = scene.judge.oracle.as_ref();
        let conn = oracle.and_then(|oracle| oracle.conns.get(&scene.conn));
        let Some(identity) = conn.map(|conn| conn.identity.clone()) else { return (number, tool) };
        let stateless = self.stateless;
        let own = |call: &&Call| call.identity == identity && call.stateless == stateless;
        let mine: Vec<&Call> = scene.repeats.0.iter().filter(own).collect();
        if !mine.is_empty() && !scene.rng.once_in(3) {
            // Calls without a requestor are repeated more often than running ones, and those than
            // ended ones.
            let only = |wanted: &dyn Fn(u64) -> bool| -> Vec<&Call> {
                mine.iter().copied().filter(|call| wanted(call.number)).collect()
            };
            let missed = only(&|number| {
                oracle.is_some_and(|oracle| oracle.misses(number) || oracle.asks(number))
            });
            let running = only(&|number| oracle.is_some_and(|oracle| oracle.runs(number)));
            let anything = scene.rng.once_in(3);
            let among = match (anything, missed.is_empty(), running.is_empty()) {
                (true, ..) | (false, true, true) => &mine,
                (false, false, _) => &missed,
                (false, true, false) => &running,
            };
            let call = *scene.rng.pick(among);
            let token = params.pointer("/_meta/progressToken").cloned();
            *params = call.params.clone();
            if let Some(token) = token {
                params["_meta"]["progressToken"] = token;
            }
            if scene.rng.once_in(12) {
                // The same key for something else.
                params["arguments"]["n"] = number.into();
                return (number, call.tool);
            }
            return (call.number, call.tool);
        }
        let key = match scene.rng.below(40) {
            0 => Value::from(""),
            1 => Value::from(7),
            2 => Value::from("k".repeat(129)),
            _ => Value::from(format!("k{}", scene.rng.below(scene.swarm.keys))),
        };
        let token = params["_meta"].get("progressToken").cloned();
        params["_meta"] = serde_json::json!({"ceased/idempotencyKey": key});
        let call = Call { identity, stateless, number, tool, params: params.clone() };
        scene.repeats.0.push_back(call);
        if scene.repeats.0.len() > CALLS_MAX {
            scene.repeats.0.pop_front();
        }
        if let Some(token) = token {
            params["_meta"]["progressToken"] = token;
        }
        (number, tool)
    }
}
