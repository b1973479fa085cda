//! Redis alone beside what redis-benchmark reaches with the same scripts, and Redis before Postgres.

mod reference;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use semel::{PostgresOptions, PostgresStore, RedisOptions, RedisStore, Store, Tiered};
use xtask::redis_servers::RedisServers;

use crate::caller::Caller;
use crate::load::{Measured, flat_out, median, uuid_v4};
use crate::report::Report;
use crate::server::Server;
use reference::Reference;

/// How many callers there are, and how many keys they ask for again.
const CALLERS: usize = 64;
const KEYS: u64 = 10_000;

/// How much to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds that each side is measured in a round
    #[arg(long, default_value_t = 2)]
    seconds: u64,

    /// Only one part: alone, tiered
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    runtime.block_on(async {
        let mut report = Report::default();
        let wanted = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
        if wanted("alone") {
            alone(args, &mut report).await?;
        }
        if wanted("tiered") {
            tiered(args, &mut report).await?;
        }
        report.finish()
    })
}

/// Redis by itself, without persistence, as redis-benchmark meets it.
async fn alone(args: &Args, report: &mut Report) -> Result<()> {
    let mut servers = RedisServers::new()?;
    let url = servers.start("alone", "")?;
    let caller = Arc::new(Caller::new(RedisStore::connect(&url).await?)?);
    let reference = Reference::new(&servers, "alone", &url).await?;
    let length = Duration::from_secs(args.seconds);
    let in_flight = CALLERS / RedisOptions::DEFAULT_CONNECTIONS;
    let (mut first, mut replay) = (Sides::default(), Sides::default());
    for _ in 0..args.rounds {
        reference.flush().await?;
        let semel = load(&caller, length, |caller, _| async move { caller.first(&uuid_v4()).await }).await?;
        first.add(semel, reference.first(1).await?, reference.first(in_flight).await?);
        reference.flush().await?;
        fill(&caller).await?;
        let semel = load(&caller, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
        replay.add(semel, reference.replay(1).await?, reference.replay(in_flight).await?);
    }
    println!(
        "\nRedis alone, {CALLERS} callers, {} connections, medians of {} rounds",
        RedisOptions::DEFAULT_CONNECTIONS,
        args.rounds
    );
    first.print("claim + complete, new keys", in_flight);
    replay.print("replay", in_flight);
    report.at_least("claim + complete, vs redis-benchmark with as many in flight", first.ratio(), 0.6);
    let enough = (60_000.0 / median(replay.semel)).recip().max(median(replay.ratios) / 0.6);
    report.at_least("replay, vs 60,000 a second or 0.6 x redis-benchmark, whichever is lower", enough, 1.0);
    Ok(())
}

/// One side's rates, and those of redis-benchmark: one command at a time on each connection, and as many as we have.
#[derive(Default)]
struct Sides {
    semel: Vec<f64>,
    latencies: Vec<f64>,
    single: Vec<f64>,
    pipelined: Vec<f64>,
    ratios: Vec<f64>,
}

impl Sides {
    fn add(&mut self, semel: Measured, single: f64, pipelined: f64) {
        self.semel.push(semel.per_second);
        self.latencies.push(semel.percentile(50.0).as_secs_f64() * 1e3);
        self.single.push(single);
        self.pipelined.push(pipelined);
        self.ratios.push(semel.per_second / pipelined);
    }

    fn ratio(&self) -> f64 {
        median(self.ratios.clone())
    }

    fn print(&self, load: &str, in_flight: usize) {
        println!(
            "{load:<28} semel {:>8.0} a second, p50 {:.2} ms   redis-benchmark {:>8.0}, with {in_flight} in flight each {:>8.0}   {:.2} x",
            median(self.semel.clone()),
            median(self.latencies.clone()),
            median(self.single.clone()),
            median(self.pipelined.clone()),
            self.ratio(),
        );
    }
}

fn key(number: u64) -> String {
    format!("replayed-{}", number % KEYS)
}

/// Records what is to be replayed.
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

/// Redis before Postgres: what a warm one spares, and what a dead one costs.
async fn tiered(args: &Args, report: &mut Report) -> Result<()> {
    let server = Server::start(None).await?;
    let mut servers = RedisServers::new()?;
    let url = servers.start("hot", "")?;
    let durable = async |schema: &str| -> Result<PostgresStore> {
        let store = PostgresOptions::new(&server.url)?.with_schema(schema)?.connect().await?;
        store.migrate().await?;
        Ok(store)
    };
    let hot = RedisOptions::new(&url)?.with_eviction_allowed().connect().await?;
    let tier = Arc::new(Caller::new(Tiered::new(hot, durable("tier").await?))?);
    let plain = Arc::new(Caller::new(durable("plain").await?)?);
    let length = Duration::from_secs(args.seconds);
    fill(&tier).await?;
    fill(&plain).await?;
    tier.store.drain().await;

    let before = server.now().await?;
    let warm = load(&tier, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
    let busy = server.busy_since(before).await?;
    let cold = load(&plain, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
    println!(
        "\nRedis before Postgres, {CALLERS} callers: {:.0} replays a second with a warm Redis, {busy} connections of Postgres had something to do; \
         Postgres alone {:.0} a second",
        warm.per_second, cold.per_second
    );
    report.at_most("connections of Postgres with a statement while a warm Redis replays", busy as f64, 0.0);

    let (mut with_hot, mut without) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        with_hot.push(new_keys(&tier, length).await?);
        without.push(new_keys(&plain, length).await?);
    }
    let (with_hot, without) = (median(with_hot), median(without));
    println!(
        "new keys: {with_hot:.0} a second with Redis before it, {without:.0} without ({:.2} x)",
        with_hot / without
    );
    server.begin_anew(&["tier.records", "plain.records"]).await?;
    let after = killed(&tier, &mut servers, report).await?;
    // Right after, and as long: tables grow, and machines have their moods.
    let alone = new_keys(&plain, QUARTER * 16).await?;
    report.at_least("new keys from two seconds after on, vs Postgres alone", after / alone, 0.9);
    Ok(())
}

async fn new_keys<S: Store>(caller: &Arc<Caller<S>>, length: Duration) -> Result<f64> {
    Ok(load(caller, length, |caller, _| async move { caller.first(&uuid_v4()).await }).await?.per_second)
}

const QUARTER: Duration = Duration::from_millis(250);

/// Lets Redis die under load, and looks at every quarter of a second of it. Gives the rate from two seconds after on.
async fn killed(
    tier: &Arc<Caller<Tiered<RedisStore, PostgresStore>>>,
    servers: &mut RedisServers,
    report: &mut Report,
) -> Result<f64> {
    let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + QUARTER * 36;
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (tier, answered, failed) = (Arc::clone(tier), Arc::clone(&answered), Arc::clone(&failed));
            tokio::spawn(async move {
                while Instant::now() < end {
                    let count = if tier.first(&uuid_v4()).await.is_ok() { &answered } else { &failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut rates = Vec::new();
    for quarter in 0..34 {
        if quarter == 10 {
            servers.signal("KILL", "hot")?;
        }
        let (before, began) = (answered.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(QUARTER).await;
        let grown = answered.load(Ordering::Relaxed) - before;
        rates.push(grown as f64 / began.elapsed().as_secs_f64());
    }
    for caller in callers {
        caller.await.context("a caller panicked")?;
    }
    let line: Vec<String> = rates.iter().map(|rate| format!("{:.0}", rate / 1e3)).collect();
    println!(
        "new keys while Redis is killed after 10 quarters of a second, thousands a second: {}",
        line.join(" ")
    );
    ensure!(rates.len() > 18, "there is something after the two seconds");
    report.at_most("requests that failed when Redis was killed", failed.load(Ordering::Relaxed) as f64, 0.0);
    Ok(median(rates[18..].to_vec()))
}
