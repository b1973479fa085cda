//! The store on a real Redis.

mod place;

mod contract;
mod cluster;
