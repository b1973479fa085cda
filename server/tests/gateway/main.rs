//! The gateway as a process, over real sockets, between arbitrary clients and upstreams.
//!
//! - `process`, `stop`: the gateway's process, and a point at which an upstream waits.
//! - `wire`, `http2`, `certs`: clients. `upstream`: services.
//! - The other files test a property each.

mod process;
mod upstream;
mod stop;
mod wire;
mod http2;

mod semantics;
mod scopes;
mod callers;
mod secrets;
mod tokens;
mod tells;
mod losses;
mod smuggling;
mod doors;
mod refusals;
mod strays;
mod admin;
mod passing;
mod patience;
mod limits;
mod room;
mod erasing;
mod crashes;
mod streams;
mod bounds;
mod sharing;
mod ends;
mod speech;
mod signals;
mod starts;
mod stores;
mod transactions;
mod services;
mod probing;
