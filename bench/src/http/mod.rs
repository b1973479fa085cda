//! What the layer makes of an axum app: beside the same app without it, and beside cratestack-axum.
//!
//! Every app is served by a process of its own, so that its processor time can be told apart from that of the load. The
//! sides take turns within each round, and medians count.

pub(crate) mod app;
pub(crate) mod client;
pub(crate) mod served;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use tokio::runtime::{Builder, Runtime};

use crate::load::{median, uuid_v4};
use crate::report::Report;
use crate::server::Server;
use app::App;
use client::{flat_out, repeated};
use served::Served;

/// How many connections ask at the same time.
const CONNECTIONS: usize = 64;
/// The tables of the sides that have some.
const TABLES: [&str; 2] = ["semel.records", "cratestack_idempotency"];

/// What to measure, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A server to measure with instead of one of our own; its database gets schemas and tables
    #[arg(long)]
    url: Option<String>,

    /// Only these figures; all unless given
    #[arg(long, value_enum)]
    only: Vec<Figure>,

    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds for each side in each round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// A figure, or a group that is measured together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The memory store beside no layer at all
    Memory,
    /// Postgres beside cratestack-axum and cratestack-sqlx
    Postgres,
}

/// One of the apps.
#[derive(clap::Args)]
pub(crate) struct Side {
    #[command(subcommand)]
    app: App,
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Serves one of the apps.
pub(crate) fn serve(side: &Side) -> Result<()> {
    runtime()?.block_on(app::serve(&side.app))
}

/// Measures what was asked for, and compares it with what is promised.
pub(crate) fn run(args: &Args) -> Result<()> {
    runtime()?.block_on(async {
        let mut report = Report::default();
        let wants = |figure| args.only.is_empty() || args.only.contains(&figure);
        if wants(Figure::Memory) {
            memory(args, &mut report).await?;
        }
        if wants(Figure::Postgres) {
            postgres(args, &mut report).await?;
        }
        report.finish()
    })
}

async fn memory(args: &Args, report: &mut Report) -> Result<()> {
    let sides = [Served::start("no layer", &["plain"]).await?, Served::start("semel", &["forgetful"]).await?];
    let [plain, layered] = compare(args, "new keys, memory store", &sides, |_| uuid_v4()).await?;
    report.at_least("new keys, memory store, requests vs no layer", layered.rate / plain.rate, 0.7);
    report.at_most(
        "the same, processor time on top of it, in microseconds",
        layered.micros - plain.micros,
        15.0,
    );
    let sides = [Served::start("no layer", &["plain"]).await?, Served::start("semel", &["memory"]).await?];
    client::prepare(sides[1].address).await?;
    let [plain, layered] = compare(args, "replays, memory store", &sides, repeated).await?;
    report.at_least("replays, memory store, requests vs no layer", layered.rate / plain.rate, 0.7);
    report.at_most(
        "the same, processor time on top of it, in microseconds",
        layered.micros - plain.micros,
        15.0,
    );
    Ok(())
}

async fn postgres(args: &Args, report: &mut Report) -> Result<()> {
    let server = Server::start(args.url.as_deref()).await?;
    let sides = [
        Served::start("cratestack", &["cratestack", &server.url]).await?,
        Served::start("semel", &["postgres", &server.url]).await?,
    ];
    server.begin_anew(&TABLES).await?;
    let [theirs, ours] = compare(args, "new keys, Postgres", &sides, |_| uuid_v4()).await?;
    report.at_least("new keys, Postgres, vs cratestack-axum", ours.rate / theirs.rate, 5.0);
    server.begin_anew(&TABLES).await?;
    for side in &sides {
        client::prepare(side.address).await?;
    }
    let [theirs, ours] = compare(args, "replays, Postgres", &sides, repeated).await?;
    report.at_least("replays, Postgres, vs cratestack-axum", ours.rate / theirs.rate, 8.0);
    Ok(())
}

/// What a load came to.
struct Measured {
    /// Requests a second.
    rate: f64,
    /// Processor time of the server for each request.
    micros: f64,
}

/// Lets the sides take turns, and prints the median of each.
async fn compare(
    args: &Args,
    what: &str,
    sides: &[Served; 2],
    key: impl Fn(u64) -> String + Copy + Send + Sync + 'static,
) -> Result<[Measured; 2]> {
    let length = Duration::from_secs_f64(args.seconds);
    for side in sides {
        // The first time, memory is fetched from the system, and connections are made.
        flat_out(side.address, CONNECTIONS, length, key).await?;
    }
    let mut rates = [Vec::new(), Vec::new()];
    let mut micros = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (at, side) in sides.iter().enumerate() {
            let before = side.processor_seconds()?;
            let answered = flat_out(side.address, CONNECTIONS, length, key).await?.max(1) as f64;
            rates[at].push(answered / args.seconds);
            micros[at].push((side.processor_seconds()? - before) * 1e6 / answered);
        }
    }
    println!("\n{what}, {CONNECTIONS} connections");
    let mut measured = rates
        .into_iter()
        .zip(micros)
        .map(|(rates, micros)| Measured { rate: median(rates), micros: median(micros) });
    let medians = [(); 2].map(|()| measured.next().expect("two sides"));
    for (side, Measured { rate, micros }) in sides.iter().zip(&medians) {
        println!(
            "  {:<12} {rate:>9.0} a second   {micros:>6.1} us of processor time each   {:.2} x",
            side.name,
            rate / medians[0].rate,
        );
    }
    Ok(medians)
}
