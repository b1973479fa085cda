//! The watch over the size of the store, so that new keys are refused when it has reached its
//! limit.

use std::time::Duration;

use anyhow::{Context, Result};
use metrics::gauge;
use semel::admin::{Ceiling, StoreSize};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::config::StoreLimit;
use crate::stores::Opened;

/// The interval between measurements.
const PAUSE: Duration = Duration::from_secs(2);
/// The time limit of a measurement.
const LIMIT: Duration = Duration::from_secs(5);

/// Measures the store, and then again and again until the handle is dropped. If the store does not
/// answer later, the ceiling stays as it is.
///
/// # Errors
/// If the first measurement fails: without it the first requests would have no limit.
pub(super) async fn watch(
    store: Opened,
    limit: StoreLimit,
    ceiling: Ceiling,
) -> Result<AbortOnDropHandle<()>> {
    let measured = timeout(LIMIT, store.size()).await;
    let size = measured
        .with_context(|| format!("it did not answer within {LIMIT:?}"))
        .and_then(|size| Ok(size?))
        .context("the store cannot be measured for max-store")?;
    show(size);
    set(&ceiling, limit, size);
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut is_measured = true;
        loop {
            sleep(PAUSE).await;
            match timeout(LIMIT, store.size()).await {
                Ok(Ok(size)) => {
                    is_measured = true;
                    show(size);
                    set(&ceiling, limit, size);
                }
                unanswered => {
                    // The failure is logged once; claims report the cause themselves.
                    if std::mem::take(&mut is_measured) {
                        let error = unanswered.map(|size| size.err().map(|error| error.to_string()));
                        tracing::warn!(?error, "the store could not be measured for max-store");
                    }
                }
            }
        }
    })))
}

fn set(ceiling: &Ceiling, limit: StoreLimit, size: StoreSize) {
    let is_reached = match limit {
        StoreLimit::Bytes(most) => size.bytes.is_some_and(|bytes| bytes >= most),
        StoreLimit::Records(most) => size.records.is_some_and(|records| records >= most),
    };
    match (ceiling.set_reached(is_reached), is_reached) {
        (false, true) => {
            tracing::warn!(%limit, "the store has reached max-store: new keys are refused until records expire");
        }
        (true, false) => tracing::info!(%limit, "the store is below max-store again: new keys are accepted"),
        _ => {}
    }
}

fn show(size: StoreSize) {
    for (name, value) in
        [("semel_gateway_store_bytes", size.bytes), ("semel_gateway_store_records", size.records)]
    {
        if let Some(value) = value {
            gauge!(name).set(value as f64);
        }
    }
}
