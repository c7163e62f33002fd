//! Every error with its exact text.

use super::*;

/// A file, and everything that is said about it, with `F` for its name.
fn said(text: &str) -> String {
    match parse(text) {
        Ok(_) => "nothing".into(),
        Err(why) => why.to_string().replace("/etc/ceased/config.toml", "F"),
    }
}

fn table(rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        println!("----\n{text}\n=>\n{}", said(text));
    }
    for (text, expected) in rows {
        assert_eq!(said(text), *expected, "\nof\n{text}\n");
    }
}
