//! A small seeded random generator, so that every failure can be reproduced.

/// SplitMix64: one word of state, sufficient to choose events.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next word.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        let word = usize::try_from(self.word() >> 33).expect("31 bits fit");
        word % end
    }

    /// True once in `odds` times.
    pub fn once_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
