//! engine_host
