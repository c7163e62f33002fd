//! engine_walk
