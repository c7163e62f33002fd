//! Checks that the list of deliberate faults still applies to the core.

use std::collections::BTreeSet;

use ceased_simulator::mutants::faults;
use ceased_simulator::workspace;

#[test]
fn every_fault_still_applies() {
    let faults = faults();
    assert!(faults.len() >= 25, "{} faults", faults.len());
    let names: BTreeSet<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names.len(), faults.len(), "two faults have one name");
    let wrong: Vec<String> =
        faults.iter().filter_map(|fault| fault.applied(&workspace::root()).err()).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The table lists exactly these faults, and each of them was caught.
#[test]
fn table_matches_the_list_of_faults() {
    let table =
        std::fs::read_to_string(workspace::root().join("tests/simulator/mutants/README.md"));
    let table = table.expect("the table can be read");
    for fault in faults() {
        let row = table.lines().find(|line| line.contains(&format!("| `{}` |", fault.name)));
        let row = row.unwrap_or_else(|| panic!("{} is not in the table", fault.name));
        assert!(!row.contains("**none**"), "{row}");
    }
}
