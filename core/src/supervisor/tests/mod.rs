//! Tables of inputs and effects.

mod cancel;
mod kit;
mod ladder;
mod life;
mod version_two;
