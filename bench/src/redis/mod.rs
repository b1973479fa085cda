//! Redis alone, compared with redis-benchmark with the same scripts, and Redis in front of
//! Postgres.
//!
//! - `reference`: redis-benchmark.
//! - `tiered`: Redis in front of Postgres.

mod reference;
mod tiered;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use semel::store::RedisOptions;
use semel::{RedisStore, Store};
use testkit::servers::RedisServers;

use crate::caller::Caller;
use crate::load::{Measured, flat_out, uuid_v4};
use crate::report::{Report, progress};
use crate::rounds::{Rounds, number};
use crate::table::Table;
use reference::Reference;

/// The number of callers, and the number of keys of their repeats.
const CALLERS: usize = 64;
const KEYS: u64 = 10_000;

/// The amount to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds that each side is measured in a round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// Commands that redis-benchmark sends for each of its figures
    #[arg(long, default_value_t = 60_000)]
    commands: usize,

    /// Only one part: alone, tiered
    #[arg(long)]
    only: Option<String>,
}

impl Args {
    /// The settings for the page of all benchmarks.
    pub(crate) fn of_page(long: bool) -> Self {
        let (rounds, seconds, commands) = if long { (5, 2.0, 60_000) } else { (3, 1.0, 30_000) };
        Self { rounds, seconds, commands, only: None }
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    measure(args)?.finish()
}

pub(crate) fn measure(args: &Args) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    runtime.block_on(async {
        let mut report = Report::new("Redis");
        let wanted = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
        if wanted("alone") {
            alone(args, &mut report).await?;
        }
        if wanted("tiered") {
            tiered::measure(args, &mut report).await?;
        }
        Ok(report)
    })
}

/// Redis alone, without persistence, in the same state as for redis-benchmark.
async fn alone(args: &Args, report: &mut Report) -> Result<()> {
    let mut servers = RedisServers::new()?;
    let url = servers.start("alone", "")?;
    let caller = Arc::new(Caller::new(RedisStore::connect(&url).await?)?);
    let reference = Reference::new(&servers, "alone", &url, args.commands).await?;
    report.version("Redis", format!("{}, without persistence", reference.version().await?));
    let in_flight = CALLERS / RedisOptions::DEFAULT_CONNECTIONS;
    let (mut first, mut replay) = (Sides::default(), Sides::default());
    for round in 1..=args.rounds {
        progress(format!("Redis alone: round {round} of {}", args.rounds));
        reference.flush().await?;
        let semel =
            load(&caller, args.length(), |caller, _| async move { caller.first(&uuid_v4()).await }).await?;
        first.add(&semel, reference.first(1).await?, reference.first(in_flight).await?);
        reference.flush().await?;
        fill(&caller).await?;
        let semel =
            load(&caller, args.length(), |caller, n| async move { caller.replay(&key(n)).await }).await?;
        replay.add(&semel, reference.replay(1).await?, reference.replay(in_flight).await?);
    }
    let title = format!(
        "Redis alone, {CALLERS} callers, {} connections: operations a second",
        RedisOptions::DEFAULT_CONNECTIONS
    );
    let many = format!("redis-benchmark, {in_flight} in flight each");
    let mut table =
        Table::new(title, ["", "semel", "p50, ms", "redis-benchmark, one at a time", &many, "semel vs it"]);
    for (name, sides) in [("claim + complete, new keys", &first), ("replay", &replay)] {
        table.row([
            name.to_owned(),
            sides.semel.show(),
            number(sides.latencies.median()),
            sides.single.show(),
            sides.pipelined.show(),
            format!("{} x", number(sides.ratio().median())),
        ]);
    }
    report.table(table);
    report.at_least("claim + complete, vs redis-benchmark with as many in flight", first.ratio(), 0.6);
    let enough = (replay.semel.median() / 60_000.0).max(replay.ratio().median() / 0.6);
    report.at_least("replay, vs 60,000 a second or 0.6 x redis-benchmark, whichever is lower", enough, 1.0);
    Ok(())
}

/// The rates of semel, and those of redis-benchmark: one command at a time on each connection, and
/// as many as semel sends.
#[derive(Default)]
struct Sides {
    semel: Rounds,
    latencies: Rounds,
    single: Rounds,
    pipelined: Rounds,
}

impl Sides {
    fn add(&mut self, semel: &Measured, single: f64, pipelined: f64) {
        self.semel.push(semel.per_second);
        self.latencies.push(semel.millis(50.0));
        self.single.push(single);
        self.pipelined.push(pipelined);
    }

    fn ratio(&self) -> Rounds {
        self.semel.over(&self.pipelined)
    }
}

fn key(number: u64) -> String {
    format!("replayed-{}", number % KEYS)
}

/// Records the outcomes for the replays.
async fn fill<S: Store>(caller: &Arc<Caller<S>>) -> Result<()> {
    let tasks = (0..CALLERS as u64).map(|begin| {
        let caller = Arc::clone(caller);
        tokio::spawn(async move {
            for number in (begin..KEYS).step_by(CALLERS) {
                caller.first(&key(number)).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.context("a caller panicked")??;
    }
    Ok(())
}

async fn load<S, F>(
    caller: &Arc<Caller<S>>,
    length: Duration,
    call: impl Fn(Arc<Caller<S>>, u64) -> F + Send + Sync + 'static,
) -> Result<Measured>
where
    S: Store,
    F: Future<Output = Result<()>> + Send,
{
    let caller = Arc::clone(caller);
    flat_out(CALLERS, length, move |number| call(Arc::clone(&caller), number)).await
}
