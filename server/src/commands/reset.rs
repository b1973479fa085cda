//! `semel reset`.

use anyhow::Result;
use clap::Args;

use super::change::{self, ChangeArgs};
use super::store::StoreArgs;
use crate::output::OutputArgs;
use crate::stores::Opened;

#[derive(Debug, Clone, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: ResetArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let told = reset(&opened, &args).await;
    opened.close().await;
    told
}

async fn reset(Opened { store, .. }: &Opened, args: &ResetArgs) -> Result<()> {
    let key = args.change.key.to_change(&**store).await?;
    let change = store.reset(&key, args.change.fence(), &args.change.reason).await?;
    change::tell(&**store, (&args.change, &key), change, "reset", &args.output).await
}
