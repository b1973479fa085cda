//! `semel prune`.

use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use semel::Timestamp;
use semel::admin::{Inspect, ListQuery, Prune};
use serde_json::json;

use super::shared::key;
use super::shared::progress;
use super::shared::store::StoreArgs;
use crate::config::Span;
use crate::output::{OutputArgs, json_line, print, remark};
use crate::stores::Opened;

#[derive(Debug, Clone, Args)]
pub(crate) struct PruneArgs {
    /// Of this realm only
    #[arg(long, value_name = "NAME", value_parser = key::realm)]
    realm: Option<String>,

    /// Only those whose retention was over at least this long ago, such as 7d
    #[arg(long, value_name = "DURATION")]
    expired_for: Option<Span>,

    /// Count the expired records, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Leave no byte of removed records in the file of a SQLite store, nor in its log
    ///
    /// The whole file is written anew, and claims wait meanwhile. That needs room for two copies of
    /// it: one in the folder of the store, and one in the folder of temporary files, which is
    /// SQLITE_TMPDIR, TMPDIR or /var/tmp. Without this flag, bytes of removed records may stay in
    /// unused parts of the file.
    #[arg(long, conflicts_with = "dry_run")]
    erase: bool,

    /// How many to remove at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: PruneArgs) -> Result<()> {
    if args.erase {
        args.store.place()?.check_erasable()?;
    }
    let opened = args.store.open().await?;
    let progress = progress::spinner();
    let cutoff = match args.expired_for {
        Some(span) => Some(opened.store.now().await?.before(span.0)),
        None => None,
    };
    let counted = match args.dry_run {
        true => count(&*opened.store, &args, cutoff, &progress).await,
        false => {
            let prune =
                Prune::default().with_realm(args.realm.clone()).with_before(cutoff).with_limit(args.batch);
            remove(&*opened.store, &prune, &progress).await
        }
    };
    let cleaned = match &counted {
        Ok(_) if !args.dry_run => clean(&opened, args.erase).await,
        _ => Ok(()),
    };
    progress.finish_and_clear();
    opened.close().await;
    let count = counted?;
    if args.output.is_json() {
        let removed = if args.dry_run { 0 } else { count };
        let line =
            json!({ "realm": args.realm, "expired": count, "removed": removed, "dry_run": args.dry_run });
        print(&json_line(&line)?)?;
        return cleaned;
    }
    let records = if count == 1 { "expired record" } else { "expired records" };
    print(&match args.dry_run {
        true => format!("{count} {records}; none was removed\n"),
        false => format!("removed {count} {records}\n"),
    })?;
    cleaned
}

/// Takes the bytes of removed records out of the log of a SQLite store, and of its file if asked to.
async fn clean(opened: &Opened, erase: bool) -> Result<()> {
    if erase {
        let Err(error) = opened.erase_pruned().await else { return Ok(()) };
        let is_transient = error.is_transient();
        return Err(error).context(match is_transient {
            true => "the bytes of removed records could not be erased: run the command again",
            false => "the bytes of removed records could not be erased",
        });
    }
    if !opened.empty_log().await? {
        remark(
            "warning: another connection uses the write-ahead log all the time, so it may still contain bytes of removed \
             records; run `semel prune` again",
        );
    }
    Ok(())
}

/// Removes expired records in batches, and returns their number.
pub(super) async fn remove(store: &dyn Inspect, prune: &Prune, progress: &ProgressBar) -> Result<u64> {
    let mut removed = 0;
    loop {
        let some = store.prune(prune).await?;
        removed += some;
        progress.set_message(format!("removed {removed} expired records"));
        if some < u64::from(prune.limit) {
            return Ok(removed);
        }
    }
}

async fn count(
    store: &dyn Inspect,
    args: &PruneArgs,
    cutoff: Option<Timestamp>,
    progress: &ProgressBar,
) -> Result<u64> {
    // The page size stays at its default: listed records come with their bodies, which may be
    // large.
    let mut query = ListQuery::default().with_realm(args.realm.clone()).with_expired(Some(true));
    let mut count = 0;
    loop {
        let page = store.list(&query).await?;
        let by = cutoff.unwrap_or(page.now);
        count += page.records.iter().filter(|record| record.is_expired(by)).count() as u64;
        progress.set_message(format!("{count} expired records"));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(count),
        }
    }
}
