//! The parts of `cargo xtask`, of which tests and benchmarks use [`servers`] and [`redis_servers`].

pub mod step;

pub mod checks;
pub mod tests;

pub mod servers;
pub mod redis_servers;

mod find;
mod postgres;
mod redis;

mod account;
mod debian;
