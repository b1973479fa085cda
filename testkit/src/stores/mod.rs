//! A separate place for each test: a schema, a prefix or a file, which any number of stores share
//! like those of several processes.
//!
//! - `place.rs`: a place on a store of any kind
//! - `postgres.rs`: a schema on the Postgres that all tests share, or on another
//! - `backends.rs`: the server processes behind a store on Postgres
//! - `redis.rs`: a prefix on the Redis that all tests share, or on another
//! - `redis_server.rs`: a Redis that a test stops, freezes and kills
//! - `sqlite.rs`: a file in a folder
//! - `tiered.rs`: a prefix and a schema

pub mod postgres;
pub mod redis;
pub mod sqlite;
pub mod tiered;

mod backends;
mod place;
mod redis_server;

use std::error::Error;
use std::iter::successors;

use semel::StoreError;

pub use place::Place;

/// The message of an error and those of its causes, each with its form for debugging.
pub fn whole(error: &StoreError) -> String {
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    let causes: Vec<String> = causes.map(|cause| format!("{cause} ({cause:?})")).collect();
    causes.join(": ")
}
