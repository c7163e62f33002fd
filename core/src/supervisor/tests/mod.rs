//! Tables of inputs and effects.

mod cancel;
mod choices;
mod kit;
mod life;
mod operator;
mod pieces;
mod stop_policy;
mod version_two;
