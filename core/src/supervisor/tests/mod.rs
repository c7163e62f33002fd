//! Tables of inputs and effects.

mod cancel;
mod kit;
mod life;
mod stop_policy;
mod version_two;
