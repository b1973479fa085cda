//! Real servers on this machine, for as long as the process that started them runs: a shell as
//! their guardian ends them even if that process is killed.
//!
//! - `shared.rs`: a Postgres and a Redis for a whole run, or a Postgres with other settings
//! - `postgres/`, `redis/`: servers that a test starts, crashes, freezes, copies and promotes
//! - `disk.rs`: a file system that a test can fill
//! - `guardian.rs`: the shell

mod disk;
mod guardian;
pub(crate) mod postgres;
mod redis;
mod shared;

pub use disk::{SMALL_DISK, SmallDisk, is_left_out as small_disk_is_left_out};
pub use postgres::PostgresServers;
pub use redis::RedisServers;
pub use shared::{Servers, postgres_url, redis_url};
