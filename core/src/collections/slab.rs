//! Slabs: values at stable places, by the crate `slab`.

use core::num::NonZeroU32;

/// Capacity that a slab keeps when its last value is removed.
const CAPACITY_KEPT: usize = 1024;

/// Index of a value in its slab. Starts at 1, so that an `Option<Place>` takes no extra memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabPlace(NonZeroU32);

impl SlabPlace {
    fn new(key: usize) -> Self {
        let number = u32::try_from(key + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("a slab has fewer than 2^32 values"))
    }

    const fn key(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Values at stable places. The memory of a peak is freed when the last value is removed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: slab::Slab<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: slab::Slab::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> SlabPlace {
        SlabPlace::new(self.values.insert(value))
    }

    #[inline]
    pub(crate) fn get(&self, place: SlabPlace) -> &T {
        &self.values[place.key()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: SlabPlace) -> &mut T {
        &mut self.values[place.key()]
    }

    #[inline]
    pub(crate) fn remove(&mut self, place: SlabPlace) -> T {
        let value = self.values.remove(place.key());
        if self.values.is_empty() && self.values.capacity() > CAPACITY_KEPT {
            self.values = slab::Slab::new();
        }
        value
    }

    /// Iterates over values, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabPlace, &T)> {
        self.values.iter().map(|(key, value)| (SlabPlace::new(key), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A value keeps its place, and the memory of a peak is freed.
    #[test]
    fn places_are_stable_and_memory_is_freed() {
        let mut slab = Slab::default();
        let places: Vec<SlabPlace> =
            (0..2 * CAPACITY_KEPT).map(|value| slab.insert(value)).collect();
        let (odd, even): (Vec<_>, Vec<_>) = (0..places.len()).partition(|value| value % 2 == 1);
        for value in odd {
            assert_eq!(slab.remove(places[value]), value);
        }
        assert_eq!(slab.len(), even.len());
        assert!(slab.iter().map(|(_, value)| *value).eq(even.iter().copied()));
        for value in even {
            assert_eq!((*slab.get(places[value]), slab.remove(places[value])), (value, value));
        }
        assert!(slab.values.capacity() <= CAPACITY_KEPT);
    }
}
