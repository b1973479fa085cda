//! The store on real files, a file for each property.

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
mod runtimes;
mod repeats;
mod large;
mod full;
mod pruning;
mod erasing;
mod listing;
mod closing;
mod processes;
