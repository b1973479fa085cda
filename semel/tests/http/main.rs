//! The layer, through real sockets.
//!
//! - `server`, `wire`: a server with its client, and a connection whose bytes a test writes itself.
//! - `keys`, `callers`: keys, scopes and credentials.
//! - `bodies`, `handlers`, `replays`, `routes`: the way of a request and of its answer.
//! - `problems`, `privacy`: the refusals, and the logs and metrics.
//! - `stores`, `processes`, `transactions`: failing stores, several processes, and transactional
//!   handlers.

mod bodies;
mod callers;
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
