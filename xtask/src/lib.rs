//! The parts of `cargo xtask`.
//!
//! - `step`: one command, timed. `checks`: `cargo xtask check`.
//! - `tests`, `failures`: `cargo xtask test`, and the names of the failed tests.
//! - `faults`, `instructions`: the fault harness, and the counts of instructions.

pub mod step;

pub mod checks;
pub mod tests;
mod failures;
pub mod faults;
pub mod instructions;
