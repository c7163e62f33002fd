//! Byte streams for JSON-RPC peers over mio: stdio, Unix sockets, TCP.
#![forbid(unsafe_code)]
