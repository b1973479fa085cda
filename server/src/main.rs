//! The semel binary.

mod args;
mod config;
mod stores;
mod gateway;
mod admin;
mod demo;
mod log;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Args, Command, ConfigCommand};
use config::Config;

#[tokio::main]
async fn main() -> ExitCode {
    // Whatever speaks TLS finds its cryptography here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Args::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Gateway(settings) => gateway::run(*settings).await?,
        Command::Config(ConfigCommand::Check(settings)) => {
            println!("{:#}", Config::load(&settings)?.shown());
        }
        Command::Demo { exit } => demo::run(exit).await?,
    }
    Ok(ExitCode::SUCCESS)
}
