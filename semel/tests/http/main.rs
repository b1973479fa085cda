//! The layer, through real sockets.

#[path = "../support/gate.rs"]
mod gate;
mod bodies;
mod handlers;
mod keys;
mod privacy;
mod problems;
mod replays;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod wire;
