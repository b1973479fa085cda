//! Callers that call as fast as they can, and how long they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::super::progress;

/// What a load came to.
pub(super) struct Measured {
    /// In microseconds.
    latencies: Histogram<u64>,
    took: Duration,
}

/// How many digits of a latency are kept.
const DIGITS: u8 = 3;

impl Measured {
    pub(super) fn operations(&self) -> u64 {
        self.latencies.len()
    }

    pub(super) fn per_second(&self) -> f64 {
        self.operations() as f64 / self.took.as_secs_f64()
    }

    /// What half, nine tenths, 99 of 100 and all of the operations did not exceed.
    pub(super) fn latencies_ms(&self) -> [f64; 4] {
        let ms = |micros: u64| micros as f64 / 1_000.0;
        let at = |quantile: f64| ms(self.latencies.value_at_quantile(quantile));
        [at(0.5), at(0.9), at(0.99), ms(self.latencies.max())]
    }
}

/// Lets so many callers call for so long, each again as soon as it is answered. The first failure ends it.
pub(super) async fn flat_out<F, C>(callers: usize, length: Duration, name: &str, call: C) -> Result<Measured>
where
    C: Fn(u64) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let (call, count) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let bar = progress::bar(length.as_secs());
    bar.set_message(name.to_owned());
    let began = Instant::now();
    let end = began + length;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (call, count) = (Arc::clone(&call), Arc::clone(&count));
        tasks.spawn(async move {
            let mut latencies = Histogram::new(DIGITS)?;
            while Instant::now() < end {
                let asked = Instant::now();
                call(count.fetch_add(1, Ordering::Relaxed)).await?;
                latencies.record(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX))?;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Histogram::new(DIGITS)?;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    while !tasks.is_empty() {
        tokio::select! {
            Some(ended) = tasks.join_next() => latencies.add(ended.context("a caller panicked")??)?,
            _ = seconds.tick() => bar.set_position(began.elapsed().as_secs()),
        }
    }
    let took = began.elapsed();
    bar.finish_and_clear();
    Ok(Measured { latencies, took })
}
