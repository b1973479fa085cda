//! Benchmarks of semel: `cargo run -p bench --release -- --help`.

mod all;
mod caller;
mod disk;
mod gateway;
mod http;
mod load;
mod machine;
mod memory;
mod page;
mod plot;
mod postgres;
mod process;
mod redis;
mod report;
mod rounds;
mod scale;
mod scaling;
mod server;
mod table;
mod upkeep;
mod worker;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures semel. Build it with `--release`.
#[derive(Parser)]
#[command(name = "bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All benchmarks in one run, with their page and plots
    All(all::Args),
    /// Claim + complete and replay in the memory store, on one thread and on two
    Memory(memory::Args),
    /// Claim + complete, replay, log bytes, prune and size on Postgres, compared with other designs
    /// and pgbench
    Postgres(postgres::Args),
    /// Claim + complete and replay on Redis, compared with redis-benchmark; and Redis in front of
    /// Postgres when it dies
    Redis(redis::Args),
    /// The layer around an axum app: its cost in memory, and on Postgres compared with
    /// cratestack-axum
    Http(http::Args),
    /// The gateway, compared with its upstream and with nginx; replays from SQLite, and its memory
    Gateway(gateway::Args),
    /// The cost of an operation on Postgres by load, body, callers, rows and processes, for
    /// docs/scaling.md
    Scaling(scaling::Args),
    /// The pages of a large table that listing, counting and pruning read, for docs/postgres.md
    Upkeep(upkeep::Args),
    /// One of the processes that `postgres` and `scaling` measure
    #[command(hide = true)]
    Work(worker::Args),
    /// One of the apps that `http` measures, in a process of its own
    #[command(hide = true)]
    Serve(http::Side),
}

fn main() -> Result<()> {
    match Args::parse().what {
        What::All(args) => all::run(&args),
        What::Memory(args) => memory::run(&args),
        What::Postgres(args) => postgres::run(&args),
        What::Redis(args) => redis::run(&args),
        What::Http(args) => http::run(&args),
        What::Gateway(args) => gateway::run(&args),
        What::Scaling(args) => scaling::run(&args),
        What::Upkeep(args) => upkeep::run(&args),
        What::Work(args) => worker::run(&args),
        What::Serve(side) => http::serve(&side),
    }
}
