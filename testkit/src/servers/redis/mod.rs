//! Redis: its executables (`kind.rs`), and servers that tests stop, kill and join to clusters
//! (`servers.rs`).

mod kind;
mod servers;

pub(crate) use kind::REDIS;
pub use servers::RedisServers;
