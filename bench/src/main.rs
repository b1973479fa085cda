//! Benchmarks of semel: `cargo run -p bench --release -- --help`.

mod memory;
mod postgres;

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
    /// Claim + complete and replay in the memory store, on one thread and on two
    Memory(memory::Args),
    /// Claim + complete, replay, log bytes, prune and size on Postgres, beside two references
    Postgres(postgres::Args),
}

fn main() -> Result<()> {
    match Args::parse().what {
        What::Memory(args) => memory::run(&args),
        What::Postgres(args) => postgres::run(&args),
    }
}
