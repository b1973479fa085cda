//! The layer, through real sockets.

#[path = "../support/gate.rs"]
mod gate;
mod bodies;
mod examples;
mod handlers;
mod keys;
mod problems;
mod replays;
mod routes;
mod server;
#[path = "../support/mod.rs"]
mod support;
