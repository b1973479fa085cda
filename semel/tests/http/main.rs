//! The layer, through real sockets.

#[path = "../support/gate.rs"]
mod gate;
mod bodies;
mod callers;
mod examples;
mod handlers;
mod keys;
mod privacy;
mod problems;
mod processes;
mod replays;
mod routes;
mod server;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod transactions;
mod wire;
