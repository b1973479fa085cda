//! Real faults under load, and a checker of what clients, handlers and a ledger saw. `cargo xtask faults` builds and
//! runs it.

mod campaign;
mod scenarios;
mod scenario;
mod round;
mod world;
mod programs;
mod sites;
mod redis_cluster;
mod nemesis;
mod tally;
mod goals;
mod report;
mod footprint;
mod process;
mod reaper;
mod proxy;
mod load;
mod client;
mod work;
mod service;
mod hook;
mod transaction;
mod ledger;
mod checker;
mod event;
mod log;
mod clock;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use campaign::CampaignArgs;
use ledger::LedgerArgs;
use service::ServiceArgs;

/// Injects real faults into real processes under load, and checks what clients, handlers and a ledger saw.
#[derive(Parser)]
#[command(name = "faults")]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Runs the rounds.
    Run(CampaignArgs),
    /// Runs as the service of a round.
    #[command(hide = true)]
    Service(ServiceArgs),
    /// Runs as the ledger of a round.
    #[command(hide = true)]
    Ledger(LedgerArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Args::parse().role {
        Role::Run(args) => campaign::run(args).await,
        Role::Service(args) => service::serve(args).await,
        Role::Ledger(args) => ledger::serve(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
