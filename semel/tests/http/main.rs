//! The layer, through real sockets.

#[path = "../support/gate.rs"]
mod gate;
mod bodies;
mod handlers;
mod keys;
mod privacy;
mod problems;
mod processes;
mod replays;
mod server;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod wire;
