//! Real servers, on this machine, for as long as whoever started them runs: a shell as their guardian ends them even if the process
//! is killed.
//!
//! - `shared.rs`: a Postgres and a Redis for a whole run, or a Postgres with settings of one's own
//! - `postgres/`, `redis/`: servers that a test starts, crashes, freezes, copies and promotes
//! - `disk.rs`: a file system that is full when a test says so
//! - `guardian.rs`: the shell

mod disk;
mod guardian;
pub(crate) mod postgres;
mod redis;
mod shared;

pub use disk::SmallDisk;
pub use postgres::PostgresServers;
pub use redis::RedisServers;
pub use shared::{Servers, postgres_url, redis_url};
