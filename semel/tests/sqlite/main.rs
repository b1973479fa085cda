//! The store on real files.

mod place;
#[path = "../support/claims.rs"]
mod claims;

mod contract;
