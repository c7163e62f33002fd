//! `soak`: drives the real daemon with mixed load and checks that its resource use stays bounded.
//!
//! Exits with 1 if a measure still grows in the last third or leftovers remain after the load, and
//! with 2 after wrong use.

use std::process::ExitCode;
use std::time::Duration;

use ceased_tests::soak;

const USE: &str = "soak [--minutes N] [--seed N]";

/// Duration and seed.
fn options() -> Result<(Duration, u64), String> {
    let (mut minutes, mut seed) = (20.0, 1);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} requires a value: {USE}"))?;
        let wrong = |why: &dyn std::fmt::Display| format!("{word} {value:?}: {why}");
        match word.as_str() {
            "--minutes" => minutes = value.parse::<f64>().map_err(|why| wrong(&why))?,
            "--seed" => seed = value.parse().map_err(|why| wrong(&why))?,
            _ => return Err(format!("{word:?} is unknown: {USE}")),
        }
    }
    let length = Duration::try_from_secs_f64(minutes * 60.0).map_err(|why| why.to_string())?;
    if length < soak::SHORTEST {
        return Err(format!("{length:?} is too short; at least {:?}: {USE}", soak::SHORTEST));
    }
    Ok((length, seed))
}

fn main() -> ExitCode {
    match options() {
        Ok((length, seed)) if soak::run(length, seed) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
