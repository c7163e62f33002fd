//! Marks on unsent frames: which stretch of an outbox belongs to which request (MOD-04).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::ids::{RequestId, RequestState};
use crate::tasks::durable::RecordKey;

/// What only who reads a frame can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// The task that a call became; its id may come again (TSK-08).
    Task(RecordKey),
    /// The call that waits for its retry.
    Call(RequestState),
}

/// A frame of a buffer.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) range: Range<usize>,
    /// Apart, since hardly any frame has one.
    pub(crate) handle: Option<Box<Handle>>,
}

/// Stretches of a buffer by request. Costs nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// In the order of the buffer, never overlapping.
    by_request: BTreeMap<RequestId, Stretches>,
}

/// What belongs to one request: nearly always its answer and nothing before that.
#[derive(Debug)]
struct Stretches {
    first: Stretch,
    others: Vec<Stretch>,
}

impl Stretches {
    fn iter(&self) -> impl Iterator<Item = &Stretch> {
        core::iter::once(&self.first).chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stretch> {
        core::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// Keeps those of which this says so, if there are any.
    fn retain(&mut self, mut keep: impl FnMut(&mut Stretch) -> bool) -> bool {
        let first = keep(&mut self.first);
        self.others.retain_mut(keep);
        if first || self.others.is_empty() {
            return first;
        }
        self.first = self.others.remove(0);
        true
    }
}

impl Marks {
    pub(crate) const fn new() -> Self {
        Self { by_request: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_request.values().map(|stretches| 1 + stretches.others.len()).sum()
    }

    /// Marks a stretch that lies behind every other.
    pub(crate) fn note(&mut self, request: &RequestId, stretch: Stretch) {
        if let Some(stretches) = self.by_request.get_mut(request) {
            stretches.others.push(stretch);
        } else {
            let stretches = Stretches { first: stretch, others: Vec::new() };
            self.by_request.insert(request.clone(), stretches);
        }
    }

    /// Everything that stretches name of which something lies behind the first `count` bytes.
    pub(crate) fn handles_behind(&self, count: usize) -> Vec<Handle> {
        let stretches = self.by_request.values().flat_map(Stretches::iter);
        let unsent = stretches.filter(|stretch| stretch.range.end > count);
        unsent.filter_map(|stretch| stretch.handle.as_deref().copied()).collect()
    }

    /// Removes the marks of a request and says where they were, in order.
    pub(crate) fn take(&mut self, request: &RequestId) -> Vec<Stretch> {
        let Some(Stretches { first, others }) = self.by_request.remove(request) else {
            return Vec::new();
        };
        core::iter::once(first).chain(others).collect()
    }

    /// The first `count` bytes of the buffer are gone, and with them what began there.
    pub(crate) fn forget_front(&mut self, count: usize) {
        self.by_request.retain(|_, stretches| {
            stretches.retain(|Stretch { range, .. }| {
                let whole = range.start >= count;
                if whole {
                    *range = range.start - count..range.end - count;
                }
                whole
            })
        });
    }

    /// These ranges, in order, were cut out of the buffer; none of them is marked any more.
    pub(crate) fn close_gaps(&mut self, gaps: &[Range<usize>]) {
        // How much is gone before the end of each gap.
        let gone: Vec<usize> = gaps
            .iter()
            .scan(0, |sum, gap| {
                *sum += gap.len();
                Some(*sum)
            })
            .collect();
        for Stretch { range, .. } in self.by_request.values_mut().flat_map(Stretches::iter_mut) {
            let before = gaps.partition_point(|gap| gap.start < range.start);
            let shift = before.checked_sub(1).and_then(|last| gone.get(last)).copied();
            let shift = shift.unwrap_or(0);
            *range = range.start - shift..range.end - shift;
        }
    }

    pub(crate) fn clear(&mut self) {
        // To clear a map costs something even when it is empty.
        if !self.by_request.is_empty() {
            self.by_request.clear();
        }
    }
}

/// Ranges of a buffer that were taken back and are still there.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Never overlapping.
    ranges: Vec<Range<usize>>,
    /// How much they are together.
    bytes: usize,
}

impl Gaps {
    pub(crate) const fn new() -> Self {
        Self { ranges: Vec::new(), bytes: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add(&mut self, range: Range<usize>) {
        self.bytes += range.len();
        self.ranges.push(range);
    }

    /// All of them, in the order of the buffer.
    pub(crate) fn into_sorted(mut self) -> Vec<Range<usize>> {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges
    }
}
