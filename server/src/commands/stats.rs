//! `semel stats`.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::shared::store::StoreArgs;
use crate::output::{Columns, OutputArgs, json_line, print};

#[derive(Debug, Clone, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: StatsArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let counted = opened.store.stats().await;
    opened.close().await;
    let stats = counted?;
    let counts = [
        ("running", stats.running),
        ("held", stats.held),
        ("lost", stats.lost),
        ("done", stats.done),
        ("released", stats.released),
    ];
    if args.output.is_json() {
        let mut object: serde_json::Map<_, _> =
            counts.into_iter().map(|(state, count)| (state.to_owned(), json!(count))).collect();
        object.insert("estimated".to_owned(), json!(stats.estimated));
        return print(&json_line(&object)?);
    }
    let rows = counts.map(|(state, count)| {
        let is_estimate = stats.estimated && ["done", "released"].contains(&state);
        [state.to_owned(), if is_estimate { format!("about {count}") } else { count.to_string() }]
    });
    print(&Columns::new(["state", "records"]).page(rows))
}
