//! The store on a real Postgres.

mod place;

mod contract;
