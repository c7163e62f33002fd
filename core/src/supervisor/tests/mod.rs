//! Tables of inputs and effects.

mod cancel;
mod kit;
mod life;
mod ladder;
mod version_two;
