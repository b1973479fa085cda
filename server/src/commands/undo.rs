//! `semel reset` and `semel forget`, which make a key available again.

use anyhow::Result;
use clap::Args;

use super::shared::change::{self, ChangeArgs};
use super::shared::store::StoreArgs;
use crate::output::OutputArgs;
use crate::stores::Opened;

#[derive(Debug, Clone, Args)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The change of the key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo {
    /// The key can be claimed again, with the same intent.
    Reset,
    /// The record is removed.
    Forget,
}

pub(crate) async fn run(undo: Undo, args: UndoArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let told = undone(&opened, undo, &args).await;
    opened.close().await;
    told
}

async fn undone(Opened { store, .. }: &Opened, undo: Undo, args: &UndoArgs) -> Result<()> {
    let key = args.change.key.to_change(&**store).await?;
    let (fence, reason) = (args.change.fence(), &args.change.reason);
    let (change, word) = match undo {
        Undo::Reset => (store.reset(&key, fence, reason).await?, "reset"),
        Undo::Forget => (store.forget(&key, fence, reason).await?, "forgotten"),
    };
    change::tell(&**store, (&args.change, &key), change, word, &args.output).await
}
