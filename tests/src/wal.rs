//! The possible state of the end of SQLite's write-ahead log after a crash: a write in progress
//! that was never synced, torn at any byte.
//!
//! The format is <https://www.sqlite.org/fileformat2.html#walformat>.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::rng::Rng;

/// Sizes of the log's header and of a frame's header.
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The last bit is the byte order of the checksum.
const MAGIC: u32 = 0x377f_0682;

/// A log as SQLite sees it during recovery.
struct Log {
    is_big_endian: bool,
    page_bytes: usize,
    salts: [u8; 8],
    /// Checksum of the valid part.
    sum: [u32; 2],
    /// End of the valid part.
    end: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Log {
    /// `None` if the bytes do not begin with a log header.
    fn read(bytes: &[u8]) -> Option<Self> {
        let magic = word(bytes, 0)?;
        let mut log = Self {
            is_big_endian: magic & 1 == 1,
            page_bytes: usize::try_from(word(bytes, 8)?).ok()?,
            salts: bytes.get(16..24)?.try_into().ok()?,
            sum: [0; 2],
            end: HEADER,
        };
        log.sum = log.checksum(bytes.get(..24)?);
        if magic & !1 != MAGIC || log.sum != [word(bytes, 24)?, word(bytes, 28)?] {
            return None;
        }
        while let Some(frame) = bytes.get(log.end..log.end + FRAME_HEADER + log.page_bytes) {
            let sum = log.frame_sum(frame);
            if frame[8..16] != log.salts || Some(sum[0]) != word(frame, 16) {
                break;
            }
            log.sum = sum;
            log.end += frame.len();
        }
        Some(log)
    }

    /// Checksum of the valid part followed by these bytes.
    fn checksum(&self, bytes: &[u8]) -> [u32; 2] {
        let read = |word: &[u8]| {
            let word = word.try_into().expect("four bytes");
            if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        bytes.chunks_exact(8).fold(self.sum, |[first, second], pair| {
            let first = first.wrapping_add(read(&pair[..4])).wrapping_add(second);
            [first, second.wrapping_add(read(&pair[4..])).wrapping_add(first)]
        })
    }

    fn frame_sum(&self, frame: &[u8]) -> [u32; 2] {
        let begun = Self { sum: self.checksum(&frame[..8]), ..*self };
        begun.checksum(&frame[FRAME_HEADER..])
    }

    /// The next valid frame, of a random page; with `pages_after` it is the last one of a commit.
    fn frame(&mut self, rng: &mut Rng, pages_after: u32) -> Vec<u8> {
        let page = 1 + u32::try_from(rng.below(20)).expect("a small number");
        let mut frame = [page.to_be_bytes(), pages_after.to_be_bytes()].concat();
        frame.extend(self.salts);
        frame.extend([0; 8]);
        frame.extend(noise(rng, self.page_bytes));
        self.sum = self.frame_sum(&frame);
        frame[16..20].copy_from_slice(&self.sum[0].to_be_bytes());
        frame[20..24].copy_from_slice(&self.sum[1].to_be_bytes());
        frame
    }
}

fn noise(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.word().to_le_bytes()[0]).collect()
}

/// End of the part that SQLite considers valid; `None` without a log.
#[must_use]
pub fn valid_bytes(log: &[u8]) -> Option<usize> {
    Log::read(log).map(|log| log.end)
}

/// Appends the beginning of a commit to the valid part of the log at `path`, torn before its last
/// byte: some whole frames and a part of the last, or noise. The valid part is unchanged.
///
/// Returns the number of bytes written, zero without a file.
///
/// # Errors
///
/// When the file cannot be read or written.
pub fn tear(path: &Path, rng: &mut Rng) -> io::Result<usize> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        read => read?,
    };
    let log = Log::read(&bytes);
    let end = log.as_ref().map_or(bytes.len(), |log| log.end);
    let tail = match log {
        Some(mut log) if !rng.once_in(3) => {
            let mut tail = Vec::new();
            for _ in 0..rng.below(4) {
                tail.extend(log.frame(rng, 0));
            }
            let mut last = log.frame(rng, 20);
            last.truncate(rng.below(last.len()));
            tail.extend(last);
            tail
        }
        Some(_) | None => {
            let count = 1 + rng.below(10_000);
            noise(rng, count)
        }
    };
    OpenOptions::new().write(true).open(path)?.write_all_at(&tail, end as u64)?;
    Ok(tail.len())
}
