//! `semel list`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use semel::Timestamp;
use semel::store::{Phase, Record};

use super::shared::filter::Filter;
use super::shared::listing::{self, Verb, short};
use super::shared::store::StoreArgs;
use crate::output::{OutputArgs, age};

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// In this state only
    #[arg(long, value_name = "STATE")]
    state: Option<StateName>,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Where a record stands, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateName {
    /// An attempt runs under a lease that is not over
    Running,
    /// The lease is over without an outcome, under hold: an operator has to decide
    Held,
    /// The lease is over without an outcome, under another policy: the next attempt takes over
    Lost,
    /// There is an outcome
    Done,
    /// The key can be claimed again
    Released,
}

impl StateName {
    fn phase(self) -> Phase {
        match self {
            Self::Running => Phase::Running,
            Self::Held => Phase::Held,
            Self::Lost => Phase::Lost,
            Self::Done => Phase::Done,
            Self::Released => Phase::Released,
        }
    }
}

const HEADER: [&str; 9] =
    ["key", "realm", "principal", "state", "operation", "attempt", "fence", "age", "owner"];

pub(crate) async fn run(args: ListArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let query = args.filter.query().with_phase(args.state.map(StateName::phase));
    let wanted = (Verb::List, query);
    let shown = listing::show(&*opened.store, wanted, &args.filter, (HEADER, row), args.output.format).await;
    opened.close().await;
    shown
}

fn row(record: &Record, now: Timestamp) -> [String; 9] {
    let scope = record.key.scope();
    let state = record.phase(now).as_str();
    [
        record.key.value().to_owned(),
        scope.realm().to_owned(),
        short(scope.principal()),
        if record.is_expired(now) { format!("{state}, expired") } else { state.to_owned() },
        record.intent.operation().to_owned(),
        record.attempt.to_string(),
        record.fence.to_string(),
        age(now.since(record.created_at)),
        record.owner.as_str().to_owned(),
    ]
}
