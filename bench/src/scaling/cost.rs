//! The cost of an operation: time, processors, log and disk.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::Args;
use crate::load::flat_out;
use crate::postgres::Semel;
use crate::process::processor_seconds;
use crate::rounds::{Rounds, number};
use crate::server::Server;

/// The columns of the tables.
pub(super) const COLUMNS: [&str; 6] = [
    "a second",
    "p50 / p99, ms",
    "processor of Postgres, µs each",
    "processor of semel and load, µs each",
    "log, bytes each",
    "syncs each",
];

/// The cost of an operation, in each round.
#[derive(Default)]
pub(super) struct Cost {
    pub(super) rate: Rounds,
    pub(super) p50: Rounds,
    pub(super) p99: Rounds,
    pub(super) server_micros: Rounds,
    pub(super) client_micros: Rounds,
    pub(super) log: Rounds,
    pub(super) syncs: Rounds,
}

impl Cost {
    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            self.rate.show(),
            format!("{} / {}", number(self.p50.median()), number(self.p99.median())),
            number(self.server_micros.median()),
            number(self.client_micros.median()),
            // The server itself writes a line to its log every now and then.
            number(self.log.median().max(0.0)),
            syncs(self.syncs.median()),
        ]
    }
}

/// A sync is shared by many operations, so two digits behind the point would not be enough.
fn syncs(each: f64) -> String {
    if each < 0.0005 { "0".to_owned() } else { format!("{each:.3}") }
}

/// The server's use of processors, log and disk so far.
pub(super) struct Used {
    seconds: f64,
    log: f64,
    syncs: f64,
}

impl Used {
    pub(super) async fn so_far(server: &Server) -> Result<Self> {
        let syncs = server.log_syncs().await?;
        Ok(Self { seconds: server.processor_seconds().await?, log: server.log_bytes().await?, syncs })
    }

    /// Adds the use by each of this many operations between the two moments.
    pub(super) fn add_until(&self, then: &Self, operations: u64, cost: &mut Cost) {
        let each = operations.max(1) as f64;
        cost.server_micros.push((then.seconds - self.seconds) * 1e6 / each);
        cost.log.push((then.log - self.log) / each);
        cost.syncs.push((then.syncs - self.syncs) / each);
    }
}

/// One round of a load.
pub(super) async fn cost<C, F>(
    args: &Args,
    server: &Server,
    callers: usize,
    side: &Arc<Semel>,
    cost: &mut Cost,
    call: C,
) -> Result<()>
where
    C: Fn(Arc<Semel>, u64) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    side.report().await?;
    let before = Used::so_far(server).await?;
    let own = processor_seconds("self")?;
    let (each, length) = (Arc::clone(side), Duration::from_secs_f64(args.seconds()));
    let measured = flat_out(callers, length, move |n| call(Arc::clone(&each), n)).await?;
    cost.rate.push(measured.per_second);
    cost.p50.push(measured.millis(50.0));
    cost.p99.push(measured.millis(99.0));
    let own = processor_seconds("self")? - own;
    cost.client_micros.push(own * 1e6 / measured.operations.max(1) as f64);
    // The use is read at once; the syncs are known only when the connections have reported them.
    let after = Used::so_far(server).await?;
    side.report().await?;
    let after = Used { syncs: server.log_syncs().await?, ..after };
    before.add_until(&after, measured.operations, cost);
    Ok(())
}
