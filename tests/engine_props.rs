//! engine_props
