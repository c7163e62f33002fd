//! Judgement of sampled CPU use: clear, or in a dead zone that is always judged alike.
//!
//! A limit without a dead zone would give a subject near it another verdict in each run.

/// Judgement of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// No work.
    Light,
    /// In the dead zone.
    Unclear,
    /// Work.
    Heavy,
}

/// A dead zone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Zone {
    /// Up to here it is no work.
    pub(crate) low: f64,
    /// From here on it is work.
    pub(crate) high: f64,
}

impl Zone {
    /// Judges one value.
    pub(crate) fn weigh(self, value: f64) -> Weight {
        match value {
            value if value <= self.low => Weight::Light,
            value if value < self.high => Weight::Unclear,
            _ => Weight::Heavy,
        }
    }
}

/// The middle one of some values; of an even number the upper one.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
