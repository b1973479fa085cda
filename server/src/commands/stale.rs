//! `semel stale`.

use anyhow::Result;
use clap::Args;
use semel::Timestamp;
use semel::store::Record;

use super::shared::filter::Filter;
use super::shared::listing::{self, Verb, short};
use super::shared::store::StoreArgs;
use crate::output::{OutputArgs, age};

#[derive(Debug, Clone, Args)]
pub(crate) struct StaleArgs {
    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const HEADER: [&str; 10] =
    ["key", "realm", "principal", "state", "operation", "attempt", "fence", "over for", "owner", "note"];

pub(crate) async fn run(args: StaleArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let wanted = (Verb::Stale, args.filter.query());
    let shown = listing::show(&*opened.store, wanted, &args.filter, (HEADER, row), args.output.format).await;
    opened.close().await;
    shown
}

fn row(record: &Record, now: Timestamp) -> [String; 10] {
    let scope = record.key.scope();
    [
        record.key.value().to_owned(),
        scope.realm().to_owned(),
        short(scope.principal()),
        record.phase(now).as_str().to_owned(),
        record.intent.operation().to_owned(),
        record.attempt.to_string(),
        record.fence.to_string(),
        age(now.since(record.lease_until)),
        record.owner.as_str().to_owned(),
        record.note.as_ref().map(|note| note.text.to_string()).unwrap_or_default(),
    ]
}
