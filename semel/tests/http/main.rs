//! The layer, through real sockets.

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
mod transactions;
mod wire;
