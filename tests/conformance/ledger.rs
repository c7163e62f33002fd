//! The ledger: a test names every rule of `rules.toml`, or `NOT_DUE` lists the rule.

use std::collections::{BTreeMap, BTreeSet};

use ceased_tests::ledger::{Rule, names, rules as ledger, test_code};
use ceased_tests::workspace;

/// Rules without a test yet, and the reason. A rule with a test must leave this table.
const NOT_DUE: [(&str, &str); 0] = [];

fn named() -> BTreeSet<String> {
    let files = workspace::rust_files();
    let code: Vec<&str> = files.iter().map(test_code).collect();
    let is_named = |rule: &Rule| code.iter().any(|text| names(text, &rule.id));
    ledger().into_iter().filter(is_named).map(|rule| rule.id).collect()
}

#[test]
fn ledger_is_well_formed() {
    let rules = ledger();
    assert!(rules.len() > 80, "{} rules", rules.len());
    let ids: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids.len(), rules.len(), "an id occurs twice");
    for rule in &rules {
        let levels = ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "OURS"];
        assert!(levels.contains(&rule.level.as_str()), "{}: {}", rule.id, rule.level);
        let parties = ["sender", "receiver", "requestor", "both"];
        assert!(parties.contains(&rule.party.as_str()), "{}: {}", rule.id, rule.party);
        assert!(rule.rule.len() > 20 && rule.observe.len() > 5, "{} says something", rule.id);
    }
    for (id, _) in NOT_DUE {
        assert!(ids.contains(id), "the ledger has no {id}");
    }
}

#[test]
fn every_rule_is_named_by_a_test() {
    let (rules, named) = (ledger(), named());
    let not_due: BTreeMap<&str, &str> = NOT_DUE.into_iter().collect();
    let mut coverage: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missing = Vec::new();
    for rule in &rules {
        for source in rule.source.split(", ") {
            let (covered, all) = coverage.entry(source).or_default();
            *covered += usize::from(named.contains(&rule.id));
            *all += 1;
        }
        match (named.contains(&rule.id), not_due.get(rule.id.as_str())) {
            (true, _) => {}
            (false, Some(why)) => println!("not due: {} ({why})", rule.id),
            (false, None) => missing.push(format!("{} {} {}", rule.id, rule.level, rule.rule)),
        }
    }
    for (source, (covered, all)) in coverage {
        println!("{source}: {covered} of {all}");
    }
    assert!(missing.is_empty(), "rules without a test:\n{}", missing.join("\n"));
}

#[test]
fn not_due_lists_no_rule_with_a_test() {
    let named = named();
    let done: Vec<&str> =
        NOT_DUE.iter().map(|(id, _)| *id).filter(|id| named.contains(*id)).collect();
    assert!(done.is_empty(), "tests name {done:?}: remove these rules from NOT_DUE");
}

#[test]
fn only_whole_ids_count() {
    assert!(names("// CAN-01, CAN-02", "CAN-01"));
    assert!(names("CAN-01", "CAN-01"));
    assert!(!names("CAN-011", "CAN-01"));
    assert!(!names("XCAN-01", "CAN-01"));
}
