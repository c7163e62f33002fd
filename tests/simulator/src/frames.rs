//! Frames that wait for a peer.

use ceased_core::{ConnId, Engine};

/// Takes everything that waits for a peer, as text with a frame a line; nothing if it is unknown.
///
/// # Panics
/// When a frame is no text.
pub fn taken(engine: &mut Engine, conn: ConnId) -> String {
    let Some(queue) = engine.send_queue(conn) else { return String::new() };
    let bytes: Vec<u8> = queue.runs().flatten().copied().collect();
    queue.advance(bytes.len());
    String::from_utf8(bytes).expect("frames are text")
}
