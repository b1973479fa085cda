//! Postgres: its executables (`kind.rs`), the configuration of one server (`server.rs`), and
//! servers that tests crash, copy and promote (`servers.rs`).

mod kind;
mod server;
mod servers;

pub(crate) use kind::POSTGRES;
pub use servers::PostgresServers;
