//! Histograms of durations.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Upper bounds of the buckets in milliseconds; a last bucket takes longer durations.
pub(crate) const BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000];

/// Counts of durations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    /// Observations per bucket (not cumulative).
    counts: [u64; BOUNDS_MS.len() + 1],
    sum: Duration,
    longest: Duration,
}

impl Histogram {
    pub(crate) fn add(&mut self, took: Duration) {
        // Most calls are short.
        let is_first = took <= Duration::from_millis(BOUNDS_MS[0]);
        let above = |bound: &u64| Duration::from_millis(*bound) < took;
        let bucket = if is_first { 0 } else { BOUNDS_MS.partition_point(above) };
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    /// These durations and others.
    pub(crate) fn with(mut self, others: &Self) -> Self {
        self.counts.iter_mut().zip(others.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(others.sum);
        self.longest = self.longest.max(others.longest);
        self
    }

    /// Upper bound (`None` for the last bucket) and cumulative count of each bucket.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let ends = BOUNDS_MS.into_iter().map(Some).chain([None]);
        ends.zip(self.counts).scan(0, |total, (end, count)| {
            *total += count;
            Some((end, *total))
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) const fn sum(&self) -> Duration {
        self.sum
    }

    /// The duration that 95 of 100 do not exceed, at the precision of the buckets; the longest one in
    /// the last bucket. `None` of none.
    fn p95(&self) -> Option<Duration> {
        let count = self.count();
        let rank = count - count / 20;
        let reaches = |(_, below): &(Option<u64>, u64)| *below >= rank;
        let (bound, _) = self.cumulative().find(reaches).filter(|_| count > 0)?;
        Some(bound.map_or(self.longest, |bound| self.longest.min(Duration::from_millis(bound))))
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown {
            count: u64,
            sum_ms: f64,
            longest_ms: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            p95_ms: Option<f64>,
            /// Upper bound in milliseconds and cumulative count.
            buckets: Vec<(Option<u64>, u64)>,
        }
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        Shown {
            count: self.count(),
            sum_ms: millis(self.sum),
            longest_ms: millis(self.longest),
            p95_ms: self.p95().map(millis),
            buckets: self.cumulative().collect(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-38: a bucket includes its upper bound; the last one takes the rest.
    #[test]
    fn bucket_includes_its_upper_bound() {
        let mut histogram = Histogram::default();
        for micros in [0, 1_000, 1_001, 30_000_000, 30_000_001, 999_000_000] {
            histogram.add(Duration::from_micros(micros));
        }
        let counts: Vec<(Option<u64>, u64)> = histogram.cumulative().collect();
        assert_eq!(counts.first(), Some(&(Some(1), 2)));
        assert_eq!(counts.get(1), Some(&(Some(2), 3)));
        assert_eq!(counts.iter().rev().nth(1), Some(&(Some(30_000), 4)));
        assert_eq!(counts.last(), Some(&(None, 6)));
        assert_eq!(histogram.count(), 6);
    }

    #[test]
    fn p95_is_a_bound_that_was_reached() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.p95(), None);
        histogram.add(Duration::from_micros(700));
        assert_eq!(histogram.p95(), Some(Duration::from_micros(700)));
        (0..94).for_each(|_| histogram.add(Duration::from_millis(3)));
        (0..5).for_each(|_| histogram.add(Duration::from_secs(60)));
        assert_eq!(histogram.p95(), Some(Duration::from_millis(5)));
        histogram.add(Duration::from_secs(60));
        assert_eq!(histogram.p95(), Some(Duration::from_secs(60)));
    }
}
