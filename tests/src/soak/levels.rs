//! Resource use of a daemon over time, and whether it stays bounded.

use std::fmt;

use crate::daemon::Vitals;

/// A measure and its allowed growth from the middle third to the last: a part of the median, plus a
/// constant, because medians of a random load vary.
struct Measure {
    name: &'static str,
    percent: u64,
    more: u64,
}

const MEASURES: [Measure; 6] = [
    Measure { name: "resident memory, KiB", percent: 5, more: 1024 },
    Measure { name: "descriptors", percent: 20, more: 8 },
    Measure { name: "threads", percent: 20, more: 4 },
    Measure { name: "children", percent: 20, more: 8 },
    Measure { name: "database and log, KiB", percent: 20, more: 1024 },
    Measure { name: "the ACP agent, KiB", percent: 10, more: 1024 },
];

impl Measure {
    const fn limit(&self, middle: u64) -> u64 {
        middle + middle * self.percent / 100 + self.more
    }
}

/// Samples in the order of time.
#[derive(Debug, Default)]
pub(super) struct Levels {
    samples: Vec<[u64; MEASURES.len()]>,
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

impl Levels {
    pub(super) fn add(&mut self, vitals: &Vitals, stored_bytes: u64, agent: &Vitals) {
        let Vitals { descriptors, threads, children, memory_kib, memory_peak_kib: _ } = *vitals;
        let [memory, descriptors, threads, children] =
            [memory_kib, descriptors, threads, children].map(|number| number as u64);
        let (stored, agent) = (stored_bytes / 1024, agent.memory_kib as u64);
        self.samples.push([memory, descriptors, threads, children, stored, agent]);
    }

    pub(super) const fn len(&self) -> usize {
        self.samples.len()
    }

    /// Medians of the first, middle and last third.
    fn thirds(&self, measure: usize) -> [u64; 3] {
        let third = self.samples.len() / 3;
        [0, 1, 2].map(|part| {
            let samples = self.samples.iter().skip(part * third).take(third);
            median(samples.map(|sample| sample[measure]).collect())
        })
    }

    /// Whether no measure grew beyond its margin.
    pub(super) fn are_level(&self) -> bool {
        let is_level = |(number, measure): (usize, &Measure)| {
            let [_, middle, last] = self.thirds(number);
            last <= measure.limit(middle)
        };
        self.samples.len() >= 3 && MEASURES.iter().enumerate().all(is_level)
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["median of thirds", "first", "middle", "last", "limit", "most"];
        let [name, first, middle, last, limit, most] = head;
        writeln!(f, "{name:<24}{first:>9}{middle:>9}{last:>9}{limit:>9}{most:>9}")?;
        for (number, measure) in MEASURES.iter().enumerate() {
            let [first, middle, last] = self.thirds(number);
            let limit = measure.limit(middle);
            let most = self.samples.iter().map(|sample| sample[number]).max().unwrap_or(0);
            let verdict = if last <= limit { "level" } else { "GROWS" };
            let name = measure.name;
            writeln!(f, "{name:<24}{first:>9}{middle:>9}{last:>9}{limit:>9}{most:>9}  {verdict}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(memory: impl Fn(u64) -> u64) -> Levels {
        Levels { samples: (0..300).map(|n| [memory(n), 10, 10, 10, 10, 10]).collect() }
    }

    #[test]
    fn growth_is_distinguished_from_settling() {
        assert!(of(|n| 10_000 + n % 50).are_level());
        // The value settles in the first third.
        assert!(of(|n| 10_000 + 100 * n.min(90)).are_level());
        assert!(!of(|n| 10_000 + 20 * n).are_level());
        assert!(!of(|n| if n < 220 { 10_000 } else { 20_000 }).are_level());
        assert!(!Levels::default().are_level(), "no sample was taken");
    }
}
