//! What Postgres makes of it: semel beside one statement per call and beside cratestack, on one durable server.
//!
//! The sides take turns within each round, so that what else the machine does is shared by all; medians count.

mod subject;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use semel::{Prune, Store};

use crate::load::{at_pace, flat_out, median, uuid_v4, uuid_v7};
use crate::report::Report;
use crate::server::Server;
use subject::{Cratestack, PerCall, Semel, Subject};

/// What to measure, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A server to measure instead of one of our own; its database gets schemas and tables
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

    /// Connections of semel that commit batches
    #[arg(long, default_value_t = semel::PostgresOptions::DEFAULT_CONNECTIONS)]
    connections: usize,

    /// Rows of the large table
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
}

/// A figure, or a group that is measured together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Claim + complete of new keys by 1, 64 and 256 callers
    First,
    /// Repeats by 64 callers
    Replay,
    /// Bytes of the write-ahead log for each operation
    Log,
    /// Bytes of the log at three million rows, by kind of key
    Order,
    /// Latency of claims while a million records are pruned
    Prune,
    /// Throughput on a large table
    Rows,
}

/// Measures what was asked for, and compares it with what is promised.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(args.url.as_deref()).await?;
        let mut report = Report::default();
        let wants = |figure| args.only.is_empty() || args.only.contains(&figure);
        if wants(Figure::First) || wants(Figure::Replay) || wants(Figure::Log) {
            let sides = sides(args, &server).await?;
            if wants(Figure::First) {
                first(args, &server, &sides, &mut report).await?;
            }
            if wants(Figure::Replay) {
                replay(args, &server, &sides, &mut report).await?;
            }
            if wants(Figure::Log) {
                log(args, &server, &sides, &mut report).await?;
            }
        }
        if wants(Figure::Order) {
            order(args, &server, &mut report).await?;
        }
        if wants(Figure::Prune) {
            prune(args, &server, &mut report).await?;
        }
        if wants(Figure::Rows) {
            rows(args, &server, &mut report).await?;
        }
        report.finish()
    })
}

/// The tables of the sides.
const TABLES: [&str; 3] = ["semel.records", "per_call.records", "cratestack_idempotency"];

type Sides = [Arc<dyn Subject>; 3];

async fn sides(args: &Args, server: &Server) -> Result<Sides> {
    Ok([
        Arc::new(Semel::connect(&server.url, args.connections, "semel").await?),
        Arc::new(PerCall::connect(&server.url, "per_call").await?),
        Arc::new(Cratestack::connect(&server.url).await?),
    ])
}

/// Lets the sides take turns, and prints the median of each: its rate and latencies.
async fn compare<C, F>(args: &Args, what: &str, callers: usize, sides: &Sides, call: C) -> Result<[f64; 3]>
where
    C: Fn(Arc<dyn Subject>, u64) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut p50: [Vec<f64>; 3] = Default::default();
    let mut p99: [Vec<f64>; 3] = Default::default();
    for _ in 0..args.rounds {
        for (at, side) in sides.iter().enumerate() {
            let side = Arc::clone(side);
            let length = Duration::from_secs_f64(args.seconds);
            let measured = flat_out(callers, length, move |n| call(Arc::clone(&side), n)).await?;
            rates[at].push(measured.per_second);
            p50[at].push(measured.percentile(50.0).as_secs_f64() * 1e3);
            p99[at].push(measured.percentile(99.0).as_secs_f64() * 1e3);
        }
    }
    println!("\n{what}, {callers} callers");
    let medians = rates.map(median);
    for ((side, rate), (p50, p99)) in sides.iter().zip(medians).zip(p50.into_iter().zip(p99)) {
        println!(
            "  {:<16} {rate:>9.0} a second   p50 {:>7.2} ms   p99 {:>7.2} ms   semel is {:.1} x",
            side.name(),
            median(p50),
            median(p99),
            medians[0] / rate,
        );
    }
    Ok(medians)
}

async fn first(args: &Args, server: &Server, sides: &Sides, report: &mut Report) -> Result<()> {
    for (callers, bound) in [(256, 10.0), (64, 5.0), (1, 1.2)] {
        let call = |side: Arc<dyn Subject>, _| async move { side.first(&uuid_v4()).await };
        server.begin_anew(&TABLES).await?;
        let [semel, _, cratestack] =
            compare(args, "claim + complete, new keys", callers, sides, call).await?;
        let figure = format!("claim + complete, new keys, {callers} callers, vs cratestack-sqlx");
        report.at_least(&figure, semel / cratestack, bound);
    }
    Ok(())
}

/// The keys that repeats ask for.
const REPEATED: u64 = 2_000;

fn repeated(n: u64) -> String {
    format!("repeated-{}", n % REPEATED)
}

async fn replay(args: &Args, server: &Server, sides: &Sides, report: &mut Report) -> Result<()> {
    server.begin_anew(&TABLES).await?;
    for side in sides {
        for n in 0..REPEATED {
            side.first(&repeated(n)).await?;
        }
    }
    let call = |side: Arc<dyn Subject>, n| async move { side.replay(&repeated(n)).await };
    let [semel, _, cratestack] = compare(args, "replay", 64, sides, call).await?;
    report.at_least("replay, 64 callers, vs cratestack-sqlx", semel / cratestack, 30.0);
    Ok(())
}

/// Bytes of the log for each operation of 64 callers.
async fn log_bytes<C, F>(server: &Server, call: C) -> Result<f64>
where
    C: Fn(u64) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let before = server.log_bytes().await?;
    let done = flat_out(64, Duration::from_secs(3), call).await?.operations.max(1);
    Ok((server.log_bytes().await? - before) / done as f64)
}

async fn log(args: &Args, server: &Server, sides: &Sides, report: &mut Report) -> Result<()> {
    server.begin_anew(&TABLES).await?;
    let mut bytes: [Vec<f64>; 3] = Default::default();
    for _ in 0..args.rounds {
        for (at, side) in sides.iter().enumerate() {
            let side = Arc::clone(side);
            bytes[at].push(log_bytes(server, move |_| first_of(Arc::clone(&side), uuid_v4())).await?);
        }
    }
    let [semel, per_call, cratestack] = bytes.map(median);
    println!(
        "\nlog bytes of a claim + complete: semel {semel:.0}, per call {per_call:.0}, cratestack-sqlx {cratestack:.0}"
    );
    report.at_most(
        "log bytes per claim + complete, 200-byte body, vs cratestack-sqlx",
        semel / cratestack,
        0.85,
    );

    let side = Arc::clone(&sides[0]);
    side.first("replayed").await?;
    let before = server.log_bytes().await?;
    let replays = flat_out(64, Duration::from_secs(2), move |_| {
        let side = Arc::clone(&side);
        async move { side.replay("replayed").await }
    })
    .await?;
    // The server itself writes a line to its log every now and then.
    let bytes = (server.log_bytes().await? - before) / replays.operations as f64;
    report.at_most("log bytes per replay", (bytes * 100.0).floor() / 100.0, 0.0);
    Ok(())
}

async fn first_of(side: Arc<dyn Subject>, key: String) -> Result<()> {
    side.first(&key).await
}

/// Keys that carry their time beside keys that do not, each from a checkpoint on, when every page is logged
/// whole once.
async fn order(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let side: Arc<dyn Subject> = Arc::new(Semel::connect(&server.url, args.connections, "many").await?);
    server.fill("many", 3_000_000.min(args.rows), false).await?;
    let (mut random, mut in_order) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        for (key, bytes) in [(uuid_v4 as fn() -> String, &mut random), (uuid_v7, &mut in_order)] {
            server.run("checkpoint").await?;
            let side = Arc::clone(&side);
            bytes.push(log_bytes(server, move |_| first_of(Arc::clone(&side), key())).await?);
        }
    }
    let (random, in_order) = (median(random), median(in_order));
    println!("\nlog bytes of a claim + complete at 3 million rows: UUIDv4 {random:.0}, UUIDv7 {in_order:.0}");
    report.at_most(
        "log bytes per claim + complete at 3 million rows, UUIDv7 vs UUIDv4",
        in_order / random,
        0.3,
    );
    Ok(())
}

/// The latency of claims at a pace, before and while a million expired records are pruned.
async fn prune(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    const PACE: u32 = 2_000;
    let side = Arc::new(Semel::connect(&server.url, args.connections, "pruned").await?);
    let expired = 1_000_000.min(args.rows);
    server.fill("pruned", expired, true).await?;
    let claims = |side: &Arc<Semel>| {
        let side = Arc::clone(side);
        move |_| {
            let side = Arc::clone(&side);
            async move { side.claim(&uuid_v4()).await.map(drop) }
        }
    };
    let before = at_pace(PACE, tokio::time::sleep(Duration::from_secs(10)), claims(&side)).await?;
    let store = side.store.clone();
    let began = Instant::now();
    let pruned = async {
        let mut removed = 0;
        while removed < expired {
            match store.prune(&Prune::default()).await {
                Ok(0) | Err(_) => break,
                Ok(some) => removed += some,
            }
        }
    };
    let during = at_pace(PACE, pruned, claims(&side)).await?;
    let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
    println!(
        "\nclaims at {PACE} a second while {expired} records are pruned in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    for (name, measured) in [("before", &before), ("meanwhile", &during)] {
        let (p50, p99, max) =
            (measured.percentile(50.0), measured.percentile(99.0), measured.percentile(100.0));
        println!("  {name:<10} p50 {:>7.2} ms   p99 {:>7.2} ms   max {:>7.2} ms", ms(p50), ms(p99), ms(max));
    }
    let ratio = ms(during.percentile(99.0)) / ms(before.percentile(99.0));
    report.at_most("p99 of claims while a million records are pruned, vs before", ratio, 3.0);
    Ok(())
}

/// Throughput on an empty and on a large table, in turns; and how the statements got at their rows.
async fn rows(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let empty: Arc<dyn Subject> = Arc::new(Semel::connect(&server.url, args.connections, "empty").await?);
    let large: Arc<dyn Subject> = Arc::new(Semel::connect(&server.url, args.connections, "large").await?);
    // Plans are made now, on an empty table, and must do for the large one.
    large.first("planned").await?;
    server.fill("large", args.rows, false).await?;
    let (read_whole, _) = server.scans("large").await?;
    let (mut on_empty, mut on_large) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        for (side, rates) in [(&empty, &mut on_empty), (&large, &mut on_large)] {
            let side = Arc::clone(side);
            let length = Duration::from_secs_f64(args.seconds);
            rates.push(
                flat_out(32, length, move |_| first_of(Arc::clone(&side), uuid_v4())).await?.per_second,
            );
        }
    }
    let (whole, by_index) = server.scans("large").await?;
    let (on_empty, on_large) = (median(on_empty), median(on_large));
    println!(
        "\nclaim + complete, 32 callers: empty table {on_empty:.0} a second, {} rows {on_large:.0} a second",
        args.rows
    );
    println!(
        "  the large table was read whole {} times, through its index {by_index} times",
        whole - read_whole
    );
    report.at_least(
        &format!("throughput at {} rows vs an empty table, 32 callers", args.rows),
        on_large / on_empty,
        0.65,
    );
    report.at_most("how often statements read the large table whole", (whole - read_whole) as f64, 0.0);
    Ok(())
}
