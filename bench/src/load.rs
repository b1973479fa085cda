//! Callers that call as fast as they can, or at a fixed rate.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// The result of a load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) operations: u64,
    latencies: Vec<Duration>,
}

impl Measured {
    /// The latency that this part of the operations did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * percent / 100.0).round() as usize).copied().unwrap_or_default()
    }

    pub(crate) fn of(mut latencies: Vec<Duration>, took: Duration) -> Self {
        latencies.sort_unstable();
        let operations = latencies.len() as u64;
        Self { per_second: operations as f64 / took.as_secs_f64(), operations, latencies }
    }

    /// The result if each operation was a batch of this many.
    pub(crate) fn times(mut self, batch: u64) -> Self {
        self.per_second *= batch as f64;
        self.operations *= batch;
        self
    }

    /// The same percentile in milliseconds.
    pub(crate) fn millis(&self, percent: f64) -> f64 {
        self.percentile(percent).as_secs_f64() * 1e3
    }
}

/// Lets this many callers call for this long, each again as soon as it is answered.
pub(crate) async fn flat_out<F, C>(callers: usize, length: Duration, call: C) -> Result<Measured>
where
    C: Fn(u64) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let (call, count) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let end = began + length;
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (call, count) = (Arc::clone(&call), Arc::clone(&count));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while Instant::now() < end {
                    let asked = Instant::now();
                    call(count.fetch_add(1, Ordering::Relaxed)).await?;
                    latencies.push(asked.elapsed());
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.context("a caller panicked")??);
    }
    Ok(Measured::of(latencies, began.elapsed()))
}

/// Calls at a fixed rate, whether or not earlier calls are answered, until stopped. The latency
/// counts from the moment at which the call was due, so a stall is charged to all calls that it
/// delayed.
pub(crate) async fn at_pace<F, C>(
    per_second: u32,
    stop: impl Future<Output = ()>,
    call: C,
) -> Result<Measured>
where
    C: Fn(u64) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let step = Duration::from_secs(1) / per_second;
    let mut tasks = Vec::new();
    tokio::pin!(stop);
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut sent = 0;
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => {}
        }
        while began.elapsed() >= step * sent {
            let due = began + step * sent;
            let answer = call(sent.into());
            tasks.push(tokio::spawn(async move {
                answer.await?;
                anyhow::Ok(due.elapsed())
            }));
            sent += 1;
        }
    }
    let took = began.elapsed();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.push(task.await.context("a caller panicked")??);
    }
    Ok(Measured::of(latencies, took))
}

/// A UUID of version 4: random.
pub(crate) fn uuid_v4() -> String {
    uuid(rand::random(), 4)
}

/// A UUID of version 7: it begins with the time.
pub(crate) fn uuid_v7() -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    uuid(millis << 80 | rand::random::<u128>() >> 48, 7)
}

fn uuid(bits: u128, version: u128) -> String {
    let bits = bits & !(0xf << 76) | version << 76;
    let bits = bits & !(0x3 << 62) | 0x2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
