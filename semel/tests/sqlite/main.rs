//! The store on real files, a file for each property.

mod child;

mod opening;
mod schema;
mod constraints;
mod outcomes;
mod unreadable;
mod damaged;
mod busy;
mod repeats;
mod large;
mod full;
mod erasing;
mod listing;
mod closing;
mod processes;
