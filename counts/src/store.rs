//! The operations on the memory store.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::FutureExt;
use semel::store::{Ack, Ask, Claim, Owner, Record};
use semel::{Intent, Key, MemoryStore, Outcome, Store, Timestamp};

use crate::MOST;

/// How many keys are there before. Maps that grow would be counted, and chance has a part in which do: keys are spread over
/// 64 maps by hashes that differ from run to run. With this many, all have room for 448, and none is about to grow.
pub(crate) const BEFORE: usize = 19_000;

pub(crate) fn claim_and_complete(times: usize) -> Result<()> {
    let store = MemoryStore::new();
    let asks: Vec<Ask> = (0..BEFORE + MOST).map(|number| ask(&store, number)).collect::<Result<_>>()?;
    let outcome = outcome()?;
    asks.iter().take(BEFORE + times).try_for_each(|ask| run(&store, ask, &outcome))
}

/// A record that is done, a repeat of what was asked, and the store's time.
pub(crate) fn done() -> Result<(Record, Ask, Timestamp)> {
    let store = MemoryStore::new();
    let first = ask(&store, 0)?;
    run(&store, &first, &outcome()?)?;
    let found = store.find(&first.key).now_or_never().context("memory made us wait")??;
    Ok((found.context("the record is gone")?, ask(&store, 0)?, store.memory_clock().now()))
}

fn run(store: &MemoryStore, ask: &Ask, outcome: &Outcome) -> Result<()> {
    let claim = store.claim(ask).now_or_never().context("memory made us wait")??;
    let Claim::Granted(lease) = claim else { bail!("a new key was not granted") };
    match store.complete(&lease, outcome).now_or_never().context("memory made us wait")?? {
        Ack::Applied => Ok(()),
        other => bail!("a complete was {other:?}"),
    }
}

/// The number is the end of a UUID. Tokens are random, as they are in a server, but made before.
fn ask(store: &MemoryStore, number: usize) -> Result<Ask> {
    Ok(Ask::new(
        Key::new("counts", &format!("8e03978e-40d5-43dd-bc93-{number:012}"))?,
        Intent::of("charge", "invoice-42", "what it is about")?,
        store.memory_clock().now().after(Duration::from_secs(100)),
    )
    .with_owner(Owner::new("counts")))
}

fn outcome() -> Result<Outcome> {
    Ok(Outcome::new(201)?.with_body("x".repeat(200))?)
}
