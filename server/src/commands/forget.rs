//! `semel forget`.

use anyhow::Result;
use clap::Args;

use super::change::{self, ChangeArgs};
use super::store::StoreArgs;
use crate::output::OutputArgs;
use crate::stores::Opened;

#[derive(Debug, Clone, Args)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: ForgetArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let told = forget(&opened, &args).await;
    opened.close().await;
    told
}

async fn forget(Opened { store, .. }: &Opened, args: &ForgetArgs) -> Result<()> {
    let key = args.change.key.to_change(&**store).await?;
    let change = store.forget(&key, args.change.fence(), &args.change.reason).await?;
    change::tell(&**store, (&args.change, &key), change, "forgotten", &args.output).await
}
