//! The store on a real Postgres.

mod place;

mod contract;
mod transactions;
mod locked;
mod completion;
mod transactional;
mod schema;
mod constraints;
mod ids;
mod outcomes;
mod races;
mod pruning;
mod listing;
mod example;
