//! Redis in front of Postgres.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use semel::store::{PostgresOptions, RedisOptions, TieredOptions};
use semel::{PostgresStore, RedisStore, Store, Tiered};
use testkit::servers::RedisServers;

use super::{Args, CALLERS, fill, key, load};
use crate::caller::Caller;
use crate::load::uuid_v4;
use crate::report::{Report, progress};
use crate::rounds::{Rounds, number};
use crate::server::Server;
use crate::table::Table;

/// Redis in front of Postgres: the gain from a warm cache, and the cost of a dead one.
pub(super) async fn measure(args: &Args, report: &mut Report) -> Result<()> {
    progress("Redis before Postgres");
    let server = Server::start(None).await?;
    let mut servers = RedisServers::new()?;
    let url = servers.start("hot", "")?;
    let durable = async |schema: &str| -> Result<PostgresStore> {
        let store = PostgresOptions::new(&server.url)?.with_schema(schema).connect().await?;
        store.migrate().await?;
        Ok(store)
    };
    let hot = RedisOptions::new(&url)?.with_eviction_allowed().connect().await?;
    let behind = durable("tier").await?;
    let hot_first = TieredOptions::new().with_hot_first().open(hot.clone(), behind.clone())?;
    let hot_first = Arc::new(Caller::new(hot_first)?);
    let tier = Arc::new(Caller::new(Tiered::new(hot, behind))?);
    let plain = Arc::new(Caller::new(durable("plain").await?)?);
    let length = args.length();
    fill(&tier).await?;
    fill(&plain).await?;
    // The first repeat of each key plants its outcome.
    load(&tier, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
    tier.store.drain().await;

    let before = server.now().await?;
    let warm = load(&tier, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
    let busy = server.busy_since(before).await?;
    let cold = load(&plain, length, |caller, n| async move { caller.replay(&key(n)).await }).await?;
    report.at_most("connections of Postgres with a statement while a warm Redis replays", busy as f64, 0.0);

    let (mut with_hot, mut first, mut without) = (Rounds::default(), Rounds::default(), Rounds::default());
    for round in 1..=args.rounds {
        progress(format!("Redis before Postgres: new keys, round {round} of {}", args.rounds));
        with_hot.push(new_keys(&tier, length).await?);
        first.push(new_keys(&hot_first, length).await?);
        without.push(new_keys(&plain, length).await?);
    }
    let title = format!("Redis before Postgres, {CALLERS} callers: operations a second");
    let mut table =
        Table::new(title, ["", "Redis before it", "the same, `with_hot_first`", "Postgres alone"]);
    table.row(["replay, warm", &number(warm.per_second), "", &number(cold.per_second)]);
    table.row(["claim + complete, new keys", &with_hot.show(), &first.show(), &without.show()]);
    report.table(table);
    report.at_least("Redis before Postgres, new keys, vs Postgres alone", with_hot.over(&without), 0.85);
    server.empty_tables(&["tier.records", "plain.records"]).await?;
    let after = killed(&hot_first, &mut servers, report).await?;
    // This is measured right after, and for as long: tables grow, and machines vary.
    let alone = new_keys(&plain, QUARTER * 16).await?;
    report.at_least("new keys from two seconds after on, vs Postgres alone", after / alone, 0.9);
    Ok(())
}

async fn new_keys<S: Store>(caller: &Arc<Caller<S>>, length: Duration) -> Result<f64> {
    Ok(load(caller, length, |caller, _| async move { caller.first(&uuid_v4()).await }).await?.per_second)
}

const QUARTER: Duration = Duration::from_millis(250);

/// Kills Redis under load, and measures every quarter of a second. Returns the rate from two
/// seconds later on.
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
    report.text(format!(
        "New keys while Redis is killed after 10 quarters of a second, in thousands a second for each quarter: {}.",
        line.join(" ")
    ));
    ensure!(rates.len() > 18, "there is something after the two seconds");
    report.at_most("requests that failed when Redis was killed", failed.load(Ordering::Relaxed) as f64, 0.0);
    Ok(rates[18..].iter().copied().collect::<Rounds>().median())
}
