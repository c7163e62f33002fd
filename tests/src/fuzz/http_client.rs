//! Bytes to responses of HTTP/1.1 and their events, as the probe reads them: cut anywhere, a stream
//! gives the same texts and the same end.

use ceased::fuzzing::{HttpResponse, http_response};

/// Checks a stream; the first byte is the size of its pieces.
///
/// # Panics
/// When the result depends on the pieces.
pub fn check(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let wanted = http_response(stream, stream.len().max(1));
    for size in [usize::from(*size).max(1), 1] {
        assert_eq!(http_response(stream, size), wanted, "in pieces of {size}");
    }
    let HttpResponse { texts, is_wrong, .. } = wanted;
    let length: usize = texts.iter().map(String::len).sum();
    // A byte that is no UTF-8 becomes a character of three, with one more in front of the text.
    assert!(length <= stream.len() * 3 + texts.len() * 3, "{length} bytes of texts, {is_wrong}");
}
