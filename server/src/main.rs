//! The semel binary.

mod args;
mod demo;

use anyhow::Result;
use clap::Parser;

use args::{Args, Command};

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        Command::Demo => demo::run().await,
    }
}
