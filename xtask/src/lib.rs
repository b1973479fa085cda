//! The parts of `cargo xtask`, of which tests and benchmarks use [`servers`].

pub mod step;

pub mod checks;
pub mod tests;

pub mod servers;

mod find;
mod postgres;
mod redis;

mod account;
mod debian;
