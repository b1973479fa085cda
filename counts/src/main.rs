//! The hot paths in memory, each done a given number of times, for `cargo xtask instructions` to count.
//!
//! Without arguments it prints the names of the operations. What an operation needs is made before, and always for
//! [`MOST`] times, so that the difference between two runs is the operation itself.

mod layer;
mod operations;
mod store;

use std::env;

use anyhow::{Context, Result, bail, ensure};

/// How often an operation can be done in one run.
const MOST: usize = 3_000;

/// Does it so many times.
type Operation = fn(usize) -> Result<()>;

/// In the order of the recorded table.
const OPERATIONS: [(&str, Operation); 9] = [
    ("parse a quoted `Idempotency-Key`", operations::parse_quoted),
    ("parse a bare `Idempotency-Key`", operations::parse_bare),
    ("fingerprint a request with a body of 1 KiB", operations::fingerprint),
    ("decide on a claim that finds an outcome", operations::decide),
    ("claim and complete a new key in the memory store", store::claim_and_complete),
    ("a request with a new key through the layer", layer::first),
    ("a repeat of a request through the layer", layer::replay),
    ("write four headers into an outcome", operations::write_headers),
    ("read the four headers of an outcome", operations::read_headers),
];

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let Some(name) = args.next() else {
        OPERATIONS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let times: usize = args.next().context("say how often")?.parse().context("say how often")?;
    ensure!(times <= MOST, "at most {MOST} times");
    let Some((_, operation)) = OPERATIONS.iter().find(|(known, _)| *known == name) else {
        bail!("there is no operation {name:?}");
    };
    operation(times)
}
