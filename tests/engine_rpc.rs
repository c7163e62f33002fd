//! engine_rpc
