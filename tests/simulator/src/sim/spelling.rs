//! Other spellings, as of other serializers. Each one is drawn from a copy of the
//! generator's dice, so that nothing else of a history depends on it.

use serde_json::{Value, json};

use crate::rng::Rng;

/// A number as an id: in one of its spellings, or far beyond 64 bits.
pub(super) fn number(number: u64, mut rng: Rng) -> String {
    let far = (1_u128 << 64) + u128::from(number);
    match rng.below(16) {
        0 => format!("{number}.0"),
        1 => format!("{number}0e-1"),
        2 => format!("{number}e0"),
        3 => far.to_string(),
        4 => format!("{far}.0"),
        _ => number.to_string(),
    }
}

/// The same id in another spelling, now and then.
pub(super) fn again(token: &str, mut rng: Rng) -> String {
    match (token.strip_suffix(".0"), rng.below(4)) {
        (Some(whole), 0 | 1) => whole.to_owned(),
        (None, 0) if token.bytes().all(|byte| byte.is_ascii_digit()) => format!("{token}.0"),
        (None, 1) if token.bytes().all(|byte| byte.is_ascii_digit()) => format!("{token}00e-2"),
        _ => token.to_owned(),
    }
}

/// Further members of the params of a cancel.
pub(super) fn beside(mut rng: Rng) -> &'static str {
    match rng.below(16) {
        0 => r#","reason":null"#,
        1 => r#","reason":7"#,
        2 => r#","reason":["x"],"reason":{}"#,
        3 => r#","reason":"cut \ud83e""#,
        4 => r#","_meta":7"#,
        5 => r#","_meta":{"progressToken":[],"progressToken":{}}"#,
        6 => r#","\ud800":{"requestId":0},"name":null"#,
        _ => "",
    }
}

/// Further members of a notification.
pub(super) fn around(mut rng: Rng) -> &'static str {
    match rng.below(16) {
        0 => r#""id":null,"#,
        1 => r#""id":null,"result":null,"error":null,"#,
        2 => r#""\ud800":[],"#,
        _ => "",
    }
}

/// A progress token for a call with this number: one that can be one, or none.
pub(super) fn token(number: u64, mut rng: Rng) -> Option<Value> {
    match rng.below(16) {
        0 => Some(json!(number as f64)),
        1 => Some(json!(number as f64 + 0.5)),
        2 => Some(Value::Null),
        3 => Some(json!({"token": number})),
        4 => Some(json!([])),
        _ => None,
    }
}

/// A task for a call as others write one.
pub(super) fn task(mut rng: Rng) -> Value {
    match rng.below(6) {
        0 => json!({"ttl": null}),
        1 => json!({"ttl": 8000.0}),
        2 => Value::Null,
        _ => json!({}),
    }
}

/// Params that are as if they were not there.
pub(super) fn nothing(mut rng: Rng) -> Value {
    match rng.below(6) {
        0 => Value::Null,
        1 => json!([]),
        _ => json!({}),
    }
}

/// A `_meta` that says nothing.
pub(super) fn meta(mut rng: Rng) -> Option<Value> {
    match rng.below(8) {
        0 => Some(Value::Null),
        1 => Some(json!(7)),
        2 => Some(json!([{"a": 1}])),
        3 => Some(json!({"ceased/reason": 7, "progressToken": {}})),
        _ => None,
    }
}
