//! Differences between the results of a server with `ceased wrap` and without.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Known differences: the place, and the reason.
pub(super) fn known() -> BTreeMap<&'static str, &'static str> {
    const OWN: &str =
        "a tool that runs as a task only is refused by ceased, with the code of TSK-06";
    BTreeMap::from([
        (
            "/everything/environment/result/content/0/text/CEASED_JOB",
            "each process that ceased contains has the number of its job in its environment",
        ),
        ("/everything/task required/error", OWN),
        ("/everything/task required/result", OWN),
    ])
}

/// Known differences of transcripts: the beginning of the place, and the reason.
pub(super) fn of_transcripts() -> [(&'static str, &'static str); 2] {
    [
        ("/everything 2025-11-25/hello/result/capabilities/tasks", "the tasks are those of ceased"),
        ("/skills 2026-07-28/hello/result/supportedVersions", "ceased speaks every revision"),
    ]
}

/// Places at which two results differ. Arrays of different lengths differ as a whole.
pub(super) fn between(one: &Value, other: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    compare(one, other, "", &mut found);
    found
}

fn compare(one: &Value, other: &Value, at: &str, found: &mut BTreeSet<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(one, other, &at, found),
                    (_, _) => _ = found.insert(at),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{at}/{index}"), found);
            }
        }
        _ if one == other => {}
        _ => _ = found.insert(at.to_owned()),
    }
}

/// Replaces names of this run, times and dates by words.
pub(super) fn without_times(value: &Value, names: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => {
            let text =
                names.iter().fold(text.clone(), |text, (name, word)| text.replace(name, word));
            match serde_json::from_str::<Value>(&text) {
                // A tool's text is often JSON, whose members have no order.
                Ok(value @ Value::Object(_)) => without_times(&value, names),
                _ => Value::String(digits_of_times(&text)),
            }
        }
        Value::Array(items) => items.iter().map(|item| without_times(item, names)).collect(),
        Value::Object(members) => {
            let clean =
                |(name, value): (&String, &Value)| (name.clone(), without_times(value, names));
            Value::Object(members.iter().map(clean).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Replaces each list of progress by whether there is any: of several at once a client gets the
/// latest.
pub(super) fn without_count_of_progress(value: &mut Value) {
    for (name, member) in value.as_object_mut().into_iter().flatten() {
        match member.as_array().filter(|_| name == "steps") {
            Some(steps) => *member = Value::Bool(!steps.is_empty()),
            None => without_count_of_progress(member),
        }
    }
}

/// Replaces the digits of `12:34`, `1:23:45` and `2026-01-02` by `#`, and `AM` and `PM` after a time.
fn digits_of_times(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separates = |at: usize| {
        let pair =
            |before: usize| at >= before && digit(at - before) && digit(at + 1) && digit(at + 2);
        match bytes.get(at) {
            Some(b':') => pair(1),
            Some(b'-') => pair(2) && digit(at - 1),
            _ => false,
        }
    };
    let mut hidden = vec![false; bytes.len()];
    for at in (0..bytes.len()).filter(|at| separates(*at)) {
        let before = (0..at).rev().take_while(|at| digit(*at));
        let after = (at + 1..bytes.len()).take_while(|at| digit(*at));
        before.chain(after).for_each(|at| hidden[at] = true);
    }
    let shown = text.char_indices().map(|(at, c)| if hidden[at] { '#' } else { c });
    let mut shown: String = shown.collect();
    // An hour may have one digit.
    for separator in [":", "+"] {
        let two = format!("##{separator}");
        while shown.contains(&two) {
            shown = shown.replace(&two, &format!("#{separator}"));
        }
    }
    shown.replace(" AM", "").replace(" PM", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_by_their_place() {
        let one = json!({"a": {"b": [1, 2], "c/d": 1}, "e": [1], "f": 1});
        let other = json!({"a": {"b": [1, 3], "c/d": 2}, "e": [1, 2], "g": 1});
        let found: Vec<String> = between(&one, &other).into_iter().collect();
        assert_eq!(found, ["/a/b/1", "/a/c~1d", "/e", "/f", "/g"]);
        assert_eq!(between(&one, &one.clone()).len(), 0);
    }

    #[test]
    fn times_and_dates_are_hidden_and_other_numbers_are_not() {
        let hidden = digits_of_times("at 9:05:59 PM on 2026-11-25T09:05+09:00, 17 of 4-5, id 1:2");
        assert_eq!(hidden, "at #:#:## on ####-##-##T#:#+#:##, 17 of 4-5, id 1:2");
    }
}
