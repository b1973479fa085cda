//! `semel bench`.

mod caller;
mod load;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use semel::{Prune, Query};
use serde_json::json;

use super::progress;
use super::prune;
use super::store::StoreArgs;
use crate::config::Size;
use crate::exit::Exit;
use crate::output::{Columns, Format, OutputArgs, json_line, print, remark};
use crate::stores::{Opened, redacted};
use caller::{Caller, REALM, RETENTION};
use load::Measured;

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// How many callers call at the same time, each again as soon as it is answered
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    callers: u16,

    /// For how many seconds, each load
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,

    /// How large the body of an outcome is
    #[arg(long, value_name = "SIZE", default_value = "200")]
    body: Size,

    /// What the callers do
    #[arg(long, value_name = "LOAD", default_value = "all")]
    load: LoadName,

    /// Write to a store that others may use
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// What callers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadName {
    /// Claim a new key and complete it
    New,
    /// Ask for a key that is done
    Replay,
    /// One third new keys, two thirds replays
    Mixed,
    /// Each of them, one after the other
    All,
}

impl LoadName {
    fn each(self) -> Vec<Self> {
        match self {
            Self::All => vec![Self::New, Self::Replay, Self::Mixed],
            one => vec![one],
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Replay => "replay",
            Self::Mixed => "mixed",
            Self::All => "all",
        }
    }
}

/// What a load came to.
struct Figures {
    load: LoadName,
    measured: Measured,
    /// Bytes of WAL for each operation, if the store is Postgres. What others write meanwhile counts, too.
    wal_bytes: Option<f64>,
}

pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    let place = args.store.place()?;
    let url = place.store_url().to_owned();
    // Nobody else can use what is not there yet.
    let is_own = url.starts_with("memory:") || place.file().is_some_and(|file| !file.exists());
    if !args.yes && !is_own {
        return Err(Exit::Usage.because(format!(
            "this puts as many records as it can into {}, under load, in the realm {REALM}, and removes them afterwards; \
             say --yes to do it",
            redacted(&url)
        )));
    }
    let opened = args.store.open_or_make().await?;
    if opened.migrates_itself() {
        opened.migrate().await?;
    }
    let measured = measure(&opened, &args).await;
    let cleaned = clean(&opened).await;
    opened.close().await;
    let figures = measured?;
    cleaned
        .with_context(|| format!("the records were not removed; `semel prune --realm {REALM}` does it"))?;
    print(&shown(&figures, &args, &redacted(&url))?)
}

async fn measure(opened: &Opened, args: &BenchArgs) -> Result<Vec<Figures>> {
    let caller = Arc::new(Caller::new(Arc::clone(&opened.store), args.body.0)?);
    let loads = args.load.each();
    let length = Duration::from_secs(args.seconds);
    if loads.iter().any(|load| *load != LoadName::New) {
        caller.prepare(length * loads.len() as u32).await?;
    }
    let measured = each(opened, args, &caller, loads, length).await;
    // Also after a failure: they would be kept for as long as the loads may take.
    let forgotten = caller.forget().await;
    let figures = measured?;
    forgotten?;
    Ok(figures)
}

async fn each(
    opened: &Opened,
    args: &BenchArgs,
    caller: &Arc<Caller>,
    loads: Vec<LoadName>,
    length: Duration,
) -> Result<Vec<Figures>> {
    let mut figures = Vec::new();
    for load in loads {
        let before = opened.wal_position().await?;
        let called = Arc::clone(caller);
        let measured = load::flat_out(args.callers.into(), length, load.as_str(), move |number| {
            let caller = Arc::clone(&called);
            async move {
                match load {
                    LoadName::New => caller.first(load.as_str(), number).await,
                    LoadName::Mixed if number % 3 == 0 => caller.first(load.as_str(), number).await,
                    LoadName::Replay | LoadName::Mixed | LoadName::All => caller.replay(number).await,
                }
            }
        });
        let measured = measured.await?;
        let after = opened.wal_position().await?;
        let wal_bytes = before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before) as f64 / measured.operations().max(1) as f64);
        figures.push(Figures { load, measured, wal_bytes });
    }
    Ok(figures)
}

/// Removes what the loads have left, once it is expired.
async fn clean(opened: &Opened) -> Result<()> {
    if opened.expires_by_itself() {
        remark("the store removes the records of this bench by itself, in about a minute");
        return Ok(());
    }
    let progress = progress::spinner();
    progress.set_message("waiting until the records are expired");
    tokio::time::sleep(RETENTION).await;
    let prune = Prune { realm: Some(REALM.to_owned()), limit: 10_000, ..Prune::default() };
    let removed = prune::remove(&*opened.store, &prune, &progress).await;
    progress.finish_and_clear();
    removed?;
    let left = Query { realm: Some(REALM.to_owned()), limit: 1, ..Query::default() };
    if !opened.store.list(&left).await?.records.is_empty() {
        remark(&format!(
            "there are records in the realm {REALM} that are not expired yet; `semel prune --realm {REALM}` removes them"
        ));
    }
    Ok(())
}

fn shown(figures: &[Figures], args: &BenchArgs, store: &str) -> Result<String> {
    if args.output.format == Format::Json {
        return figures.iter().map(|figures| line(figures, args)).collect();
    }
    let header =
        ["load", "operations", "per second", "p50 ms", "p90 ms", "p99 ms", "max ms", "wal bytes each"];
    let rows = figures.iter().map(|Figures { load, measured, wal_bytes }| {
        let [p50, p90, p99, max] = measured.latencies_ms().map(|ms| format!("{ms:.2}"));
        let wal_bytes = wal_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
        let per_second = format!("{:.0}", measured.per_second());
        [
            load.as_str().to_owned(),
            measured.operations().to_string(),
            per_second,
            p50,
            p90,
            p99,
            max,
            wal_bytes,
        ]
    });
    Ok(format!(
        "{} callers on {store}, {} s each load, bodies of {}\n\n{}",
        args.callers,
        args.seconds,
        args.body,
        Columns::new(header).page(rows)
    ))
}

fn line(Figures { load, measured, wal_bytes }: &Figures, args: &BenchArgs) -> Result<String> {
    let [p50, p90, p99, max] = measured.latencies_ms();
    json_line(&json!({
        "load": load.as_str(),
        "callers": args.callers,
        "seconds": args.seconds,
        "body_bytes": args.body.0,
        "operations": measured.operations(),
        "per_second": measured.per_second(),
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
        "max_ms": max,
        "wal_bytes_per_operation": wal_bytes,
    }))
}
