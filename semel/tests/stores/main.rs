//! The tests that run on every store, or on every store with a schema.

mod contract;
mod races;
mod runtimes;
mod schema;
mod pruning;
