//! Slabs: values at stable places, in reusable pieces of memory.

use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Index of a value in its slab. Starts at 1, so that an `Option<Place>` takes no extra memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(NonZeroU32);

/// Values in one piece: growth never moves more than this many values at once.
const PIECE: usize = 1024;

impl Place {
    fn new(piece: usize, cell: usize) -> Self {
        let number = u32::try_from(piece * PIECE + cell + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("a slab has fewer than 2^32 values"))
    }

    /// Number of the piece, and of the cell in it.
    const fn split(self) -> (usize, usize) {
        let number = self.0.get() as usize - 1;
        (number / PIECE, number % PIECE)
    }
}

/// Values at stable places. A free place in the lowest piece is reused first, so that higher pieces
/// become empty and are freed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pieces: Vec<Piece<T>>,
    /// One bit for each piece with a free cell.
    room: Vec<u64>,
    /// No word of `room` before this one has a bit set.
    first_room: usize,
    /// The piece that became empty last, which is kept. Without it, insertions and removals at the
    /// border of a piece would allocate and free it each time.
    spare: usize,
    len: usize,
}

#[derive(Debug)]
struct Piece<T> {
    cells: Vec<Cell<T>>,
    /// The cell freed last: head of the free list.
    free: u32,
    used: usize,
}

#[derive(Debug)]
enum Cell<T> {
    Used(T),
    /// Next cell of the free list.
    Free(u32),
}

/// End of the free list.
const NONE: u32 = u32::MAX;

impl<T> Piece<T> {
    const fn new() -> Self {
        const { assert!(size_of::<Cell<T>>() == size_of::<T>() || size_of::<T>() < 64) };
        Self { cells: Vec::new(), free: NONE, used: 0 }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), room: Vec::new(), first_room: 0, spare: 0, len: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Place {
        let number = self.piece_with_room();
        let piece = &mut self.pieces[number];
        let cell = match piece.cells.get_mut(piece.free as usize) {
            Some(cell) => {
                let Cell::Free(before) = *cell else {
                    unreachable!("the free list names only free cells")
                };
                *cell = Cell::Used(value);
                core::mem::replace(&mut piece.free, before) as usize
            }
            None => {
                // The first piece grows as it fills, because most slabs stay small.
                if piece.cells.capacity() == 0 && number > 0 {
                    piece.cells.reserve_exact(PIECE);
                }
                piece.cells.push(Cell::Used(value));
                piece.cells.len() - 1
            }
        };
        piece.used += 1;
        if piece.used == PIECE {
            self.room[number / 64] &= !(1 << (number % 64));
        }
        self.len += 1;
        Place::new(number, cell)
    }

    /// The lowest piece with a free cell; adds a piece if there is none.
    fn piece_with_room(&mut self) -> usize {
        while let Some(word) = self.room.get(self.first_room) {
            if *word != 0 {
                return self.first_room * 64 + word.trailing_zeros() as usize;
            }
            self.first_room += 1;
        }
        let number = self.pieces.len();
        self.pieces.push(Piece::new());
        if number.is_multiple_of(64) {
            self.room.push(0);
        }
        self.first_room = number / 64;
        self.room[number / 64] |= 1 << (number % 64);
        number
    }

    #[inline]
    pub(crate) fn get(&self, place: Place) -> &T {
        let (piece, cell) = place.split();
        match &self.pieces[piece].cells[cell] {
            Cell::Used(value) => value,
            Cell::Free(_) => unreachable!("the owner of a place has not freed it"),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: Place) -> &mut T {
        let (piece, cell) = place.split();
        match &mut self.pieces[piece].cells[cell] {
            Cell::Used(value) => value,
            Cell::Free(_) => unreachable!("the owner of a place has not freed it"),
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, place: Place) -> T {
        let (number, at) = place.split();
        let piece = &mut self.pieces[number];
        let Cell::Used(value) = core::mem::replace(&mut piece.cells[at], Cell::Free(piece.free))
        else {
            unreachable!("the owner of a place has not freed it");
        };
        piece.free = at as u32;
        piece.used -= 1;
        if piece.used == 0 {
            self.give_back(number);
        }
        self.room[number / 64] |= 1 << (number % 64);
        self.first_room = self.first_room.min(number / 64);
        self.len -= 1;
        value
    }

    /// Keeps the piece that became empty and frees the previous spare.
    fn give_back(&mut self, number: usize) {
        let before = core::mem::replace(&mut self.spare, number);
        if before != number && self.pieces[before].used == 0 {
            self.pieces[before] = Piece::new();
        }
    }

    /// Iterates over values, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        self.pieces.iter().enumerate().flat_map(|(number, piece)| {
            piece.cells.iter().enumerate().filter_map(move |(at, cell)| match cell {
                Cell::Used(value) => Some((Place::new(number, at), value)),
                Cell::Free(_) => None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// A value keeps its place; no two values share one.
    #[test]
    fn places_are_stable() {
        let mut slab = Slab::default();
        let mut kept: BTreeMap<u64, Place> = BTreeMap::new();
        let mut random = 1_u64;
        for turn in 0..60_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let grows = turn / 10_000 % 2 == 0;
            if grows == (random >> 62 != 0) {
                kept.insert(turn, slab.insert(turn));
            } else if let Some(key) = kept.range(random >> 48..).next().map(|(key, _)| *key) {
                let place = kept.remove(&key).expect("it was found");
                assert_eq!(slab.remove(place), key);
            }
            assert_eq!(slab.len(), kept.len());
        }
        assert!(kept.iter().all(|(key, place)| slab.get(*place) == key));
        let mut found: Vec<u64> = slab.iter().map(|(_, value)| *value).collect();
        found.sort_unstable();
        assert!(found.iter().eq(kept.keys()));
    }

    /// Empty pieces are freed, except one.
    #[test]
    fn memory_is_freed() {
        let mut slab = Slab::default();
        let places: Vec<Place> = (0..10 * PIECE).map(|value| slab.insert(value)).collect();
        let held = |slab: &Slab<usize>| slab.pieces.iter().filter(|p| !p.cells.is_empty()).count();
        assert_eq!((held(&slab), slab.pieces.len()), (10, 10));
        for place in &places[PIECE..] {
            slab.remove(*place);
        }
        assert_eq!(held(&slab), 2);
        for place in &places[..PIECE] {
            slab.remove(*place);
        }
        assert_eq!((held(&slab), slab.len()), (1, 0));
        for value in 0..2 * PIECE {
            slab.insert(value);
        }
        assert_eq!((held(&slab), slab.pieces.len()), (2, 10));
    }
}
