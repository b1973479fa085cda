//! The parts of `cargo xtask`, of which tests and benchmarks use [`servers`], [`postgres_servers`],
//! [`redis_servers`], [`ports`], [`disk`] and [`programs`].

pub mod step;

pub mod checks;
pub mod tests;
mod failures;
pub mod faults;
pub mod instructions;

pub mod servers;
pub mod postgres_servers;
pub mod redis_servers;
pub mod ports;
pub mod disk;
pub mod programs;

mod find;
mod postgres;
mod postgres_server;
mod redis;

mod account;
mod debian;
