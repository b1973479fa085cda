//! The cost of the layer around an axum app, compared with the same app without it, and with
//! cratestack-axum.
//!
//! Every app is served by a process of its own, so that its processor time is separate from that of
//! the load. The sides take turns within each round, and medians count.
//!
//! - `app`: the apps. `served`: a server in a process of its own.
//! - `client`: the load.

pub(crate) mod app;
pub(crate) mod client;
pub(crate) mod served;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use tokio::runtime::{Builder, Runtime};

use crate::load::uuid_v4;
use crate::report::{Report, progress};
use crate::rounds::{Rounds, number};
use crate::server::Server;
use crate::table::Table;
use app::App;
use client::{flat_out, repeated};
use served::Served;

/// The number of concurrent connections.
const CONNECTIONS: usize = 64;
/// The tables of the sides that have one.
const TABLES: [&str; 2] = ["semel.records", "cratestack_idempotency"];

/// The parts to measure, and their length.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A server to use instead of starting one; its database gets schemas and tables
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

impl Args {
    /// The settings for the page of all benchmarks.
    pub(crate) fn of_page(long: bool) -> Self {
        let (rounds, seconds) = if long { (5, 2.0) } else { (3, 1.2) };
        Self { url: None, only: Vec::new(), rounds, seconds }
    }
}

/// A figure, or a group that is measured together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The memory store, compared with no layer
    Memory,
    /// Postgres, compared with cratestack-axum and cratestack-sqlx
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

/// Measures the chosen figures, and compares them with the bounds.
pub(crate) fn run(args: &Args) -> Result<()> {
    measure(args)?.finish()
}

pub(crate) fn measure(args: &Args) -> Result<Report> {
    runtime()?.block_on(async {
        let mut report = Report::new("The layer, over HTTP");
        report.version("axum", "0.8");
        let wants = |figure| args.only.is_empty() || args.only.contains(&figure);
        if wants(Figure::Memory) {
            memory(args, &mut report).await?;
        }
        if wants(Figure::Postgres) {
            postgres(args, &mut report).await?;
        }
        Ok(report)
    })
}

async fn memory(args: &Args, report: &mut Report) -> Result<()> {
    let time_on_top = "the same, processor time on top of it, in microseconds";
    let sides = [Served::start("no layer", &["plain"]).await?, Served::start("semel", &["forgetful"]).await?];
    let found = compare(args, "new keys, memory store", &sides, |_| uuid_v4(), report).await?;
    let [plain, layered] = found.as_slice() else { bail!("there are two sides") };
    report.at_least("new keys, memory store, requests vs no layer", layered.rate.over(&plain.rate), 0.7);
    report.at_most(time_on_top, layered.micros.minus(&plain.micros), 15.0);
    let sides = [Served::start("no layer", &["plain"]).await?, Served::start("semel", &["memory"]).await?];
    client::prepare(sides[1].address).await?;
    let found = compare(args, "replays, memory store", &sides, repeated, report).await?;
    let [plain, layered] = found.as_slice() else { bail!("there are two sides") };
    report.at_least("replays, memory store, requests vs no layer", layered.rate.over(&plain.rate), 0.7);
    report.at_most(time_on_top, layered.micros.minus(&plain.micros), 15.0);
    Ok(())
}

async fn postgres(args: &Args, report: &mut Report) -> Result<()> {
    let server = Server::start(args.url.as_deref()).await?;
    let sides = [
        Served::start("no layer", &["plain"]).await?,
        Served::start("semel", &["postgres", &server.url]).await?,
        Served::start("cratestack-axum", &["cratestack", &server.url]).await?,
    ];
    server.empty_tables(&TABLES).await?;
    let found = compare(args, "new keys, Postgres", &sides, |_| uuid_v4(), report).await?;
    let [_, ours, theirs] = found.as_slice() else { bail!("there are three sides") };
    report.at_least("new keys, Postgres, vs cratestack-axum", ours.rate.over(&theirs.rate), 5.0);
    by_connections(args, &server, &sides, report).await?;
    server.empty_tables(&TABLES).await?;
    for side in &sides[1..] {
        client::prepare(side.address).await?;
    }
    let found = compare(args, "replays, Postgres", &sides, repeated, report).await?;
    let [_, ours, theirs] = found.as_slice() else { bail!("there are three sides") };
    report.at_least("replays, Postgres, vs cratestack-axum", ours.rate.over(&theirs.rate), 8.0);
    Ok(())
}

/// New keys on Postgres by the number of connections.
async fn by_connections(args: &Args, server: &Server, sides: &[Served], report: &mut Report) -> Result<()> {
    let counts = [1, 4, 16, 64, 256];
    let columns = std::iter::once(String::new()).chain(counts.map(|count| count.to_string()));
    let mut table = Table::new("new keys, Postgres: requests a second, by connections", columns);
    let mut rates = vec![vec![Rounds::default(); counts.len()]; sides.len()];
    let length = Duration::from_secs_f64(args.seconds / 2.0);
    for (at, connections) in counts.into_iter().enumerate() {
        progress(format!("HTTP: new keys, Postgres, connections: {connections}"));
        server.empty_tables(&TABLES).await?;
        for _ in 0..args.rounds {
            for (side, rates) in sides.iter().zip(&mut rates) {
                let answered = flat_out(side.address, connections, length, |_| uuid_v4()).await?;
                rates[at].push(answered as f64 / length.as_secs_f64());
            }
        }
    }
    for (side, rates) in sides.iter().zip(&rates) {
        table.row(std::iter::once(side.name.to_owned()).chain(rates.iter().map(Rounds::show)));
    }
    report.table(table);
    if let [_, ours, theirs] = rates.as_slice() {
        for (at, connections) in counts.into_iter().enumerate().take(3) {
            let plural = if connections == 1 { "connection" } else { "connections" };
            let name = format!("new keys, Postgres, {connections} {plural}, vs cratestack-axum");
            report.at_least(&name, ours[at].over(&theirs[at]), 1.0);
        }
    }
    Ok(())
}

/// The result of a load.
#[derive(Default)]
struct Found {
    /// Requests a second.
    rate: Rounds,
    /// Processor time of the server for each request.
    micros: Rounds,
}

/// Lets the sides take turns, and shows the result of each.
async fn compare(
    args: &Args,
    what: &str,
    sides: &[Served],
    key: impl Fn(u64) -> String + Copy + Send + Sync + 'static,
    report: &mut Report,
) -> Result<Vec<Found>> {
    progress(format!("HTTP: {what}"));
    let length = Duration::from_secs_f64(args.seconds);
    for side in sides {
        // The first round fetches memory from the system, and makes the connections.
        flat_out(side.address, CONNECTIONS, length, key).await?;
    }
    let mut all: Vec<Found> = sides.iter().map(|_| Found::default()).collect();
    for _ in 0..args.rounds {
        for (side, found) in sides.iter().zip(&mut all) {
            let before = side.processor_seconds()?;
            let answered = flat_out(side.address, CONNECTIONS, length, key).await?.max(1) as f64;
            found.rate.push(answered / args.seconds);
            found.micros.push((side.processor_seconds()? - before) * 1e6 / answered);
        }
    }
    let mut table = Table::new(
        format!("{what}, {CONNECTIONS} connections"),
        ["", "requests a second", "µs of the server's processor time each", "vs no layer"],
    );
    for (side, found) in sides.iter().zip(&all) {
        let ratio = number(found.rate.over(&all[0].rate).median());
        table.row([side.name.to_owned(), found.rate.show(), found.micros.show(), format!("{ratio} x")]);
    }
    report.table(table);
    Ok(all)
}
