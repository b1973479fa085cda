//! The parts of `cargo xtask`, of which tests and benchmarks use [`servers`], [`redis_servers`] and [`programs`].

pub mod step;

pub mod checks;
pub mod tests;

pub mod servers;
pub mod redis_servers;
pub mod programs;

mod find;
mod postgres;
mod redis;

mod account;
mod debian;
