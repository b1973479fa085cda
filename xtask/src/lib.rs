//! The parts of `cargo xtask`.

pub mod step;

pub mod checks;
pub mod tests;
mod failures;
pub mod faults;
pub mod instructions;
