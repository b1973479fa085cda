//! The semel binary.
//!
//! - `args`: the command line.
//! - `config/`: the configuration of the gateway.
//! - `stores`, `cache`: the store of a URL, and its cache.
//! - `gateway/`: the reverse proxy.
//! - `admin/`, `readiness`: the listener for operators, and the check behind `/readyz`.
//! - `demo/`: `semel demo`.
//! - `probe/`: `semel probe`, for any server that promises safe retries.
//! - `commands/`: the operator's commands.
//! - `output/`: tables and JSON lines for their results.
//! - `exit`, `log`: the exit codes, and the output of log lines.

mod args;
mod config;
mod stores;
mod cache;
mod gateway;
mod admin;
mod readiness;
mod demo;
mod probe;
mod commands;
mod output;
mod exit;
mod log;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Args, Command, ConfigCommand};
use commands::undo::{self, Undo};
use commands::{completions, health, inspect, list, migrate, prune, resolve, stale, stats};
use config::Config;
use exit::Exit;

#[tokio::main]
async fn main() -> ExitCode {
    // rustls takes its cryptography from here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Args::parse().command).await {
        Ok(code) => code,
        Err(error) if exit::is_quiet(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The message may hold text of a record.
            output::remark(&format!("error: {}", output::escaped_lines(&format!("{error:#}"))));
            Exit::of(&error).code()
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Gateway(settings) => gateway::run(*settings).await?,
        Command::Config(ConfigCommand::Check(settings)) => {
            let config = Config::load(&settings)?;
            gateway::check(&config)?;
            output::print(&format!("{:#}\n", config.shown()))?;
        }
        Command::Demo { exit } => demo::run(exit).await?,
        Command::Migrate(command) => migrate::run(command).await?,
        Command::List(args) => list::run(args).await?,
        Command::Stale(args) => stale::run(args).await?,
        Command::Inspect(args) => inspect::run(args).await?,
        Command::Resolve(args) => resolve::run(args).await?,
        Command::Reset(args) => undo::run(Undo::Reset, args).await?,
        Command::Forget(args) => undo::run(Undo::Forget, args).await?,
        Command::Prune(args) => prune::run(args).await?,
        Command::Stats(args) => stats::run(args).await?,
        Command::Health(args) => return health::run(args).await,
        Command::Probe(args) => return probe::run(*args).await,
        Command::Completions(args) => completions::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
