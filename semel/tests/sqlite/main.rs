//! The store on real files.

mod place;
#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/until.rs"]
mod until;
#[path = "../support/contest.rs"]
mod contest;
mod child;

mod contract;
mod opening;
mod schema;
mod constraints;
mod outcomes;
mod unreadable;
mod damaged;
mod races;
mod busy;
mod repeats;
mod large;
mod full;
mod pruning;
mod erasing;
mod listing;
mod closing;
mod processes;
