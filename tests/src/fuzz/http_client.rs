//! Bytes to responses of HTTP/1.1 and their events: cut anywhere, a stream gives the same parts, the
//! same end and the same error.

use ceased_transports::http::client::{ClientLimits, Part, ResponseError, ResponseReader};

const LIMITS: ClientLimits =
    ClientLimits { head_bytes: 1024, headers: 12, body_bytes: 256, event_bytes: 128 };

/// Status, parts, end of the response, whether its connection can be used again, and its error.
type Read = (Option<u16>, Vec<Part>, bool, bool, Option<ResponseError>);

fn read(bytes: &[u8], size: usize, to_head: bool) -> Read {
    let mut reader = ResponseReader::new(LIMITS, to_head);
    let mut error = None;
    for piece in bytes.chunks(size) {
        error = reader.receive(piece).err();
        assert!(reader.held_bytes() <= 1024 + 256 + size, "{} bytes", reader.held_bytes());
    }
    let (is_whole, keeps_alive) = (reader.is_whole(), reader.keeps_alive());
    // A wrong head is looked at once its connection ends, if not before.
    error = reader.finish().err().or(error);
    let parts = std::iter::from_fn(|| reader.next_part()).collect();
    (reader.head().map(|head| head.status), parts, is_whole, keeps_alive, error)
}

/// Checks a stream; the first byte is the size of its pieces.
///
/// # Panics
/// When the result depends on the pieces, or has more bytes than the stream.
pub fn check(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    for to_head in [false, true] {
        let wanted = read(stream, stream.len().max(1), to_head);
        for size in [usize::from(*size).max(1), 1] {
            assert_eq!(read(stream, size, to_head), wanted, "in pieces of {size}");
        }
        let length = |part: &Part| match part {
            Part::Body(body) => body.len(),
            Part::Event(event) => event.data.len(),
        };
        let length: usize = wanted.1.iter().map(length).sum();
        assert!(length <= stream.len(), "{length} bytes of parts");
    }
}
