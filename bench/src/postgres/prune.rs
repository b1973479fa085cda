//! The effect of pruning on concurrent claims.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use semel::Store;
use semel::admin::Prune;

use super::Args;
use super::subject::Semel;
use crate::load::{at_pace, uuid_v4};
use crate::report::{Report, progress};
use crate::rounds::{grouped, number};
use crate::server::Server;
use crate::table::Table;

/// The latency of claims at a fixed rate, before and while expired records are pruned.
pub(super) async fn prune(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    const PACE: u32 = 2_000;
    let side = Arc::new(Semel::connect(&server.url, args.connections, "pruned").await?);
    server.fill("pruned", args.expired, true).await?;
    progress("Postgres: claims at a pace, before and while expired records are pruned");
    let claims = |side: &Arc<Semel>| {
        let side = Arc::clone(side);
        move |_| {
            let side = Arc::clone(&side);
            async move { side.claim(&uuid_v4()).await.map(drop) }
        }
    };
    let calm = Duration::from_secs_f64(args.seconds * args.rounds as f64);
    let before = at_pace(PACE, tokio::time::sleep(calm), claims(&side)).await?;
    let store = side.store.clone();
    let began = Instant::now();
    let pruned = async {
        let mut removed = 0;
        while removed < args.expired {
            match store.prune(&Prune::default()).await {
                Ok(0) | Err(_) => break,
                Ok(some) => removed += some,
            }
        }
    };
    let during = at_pace(PACE, pruned, claims(&side)).await?;
    let expired = grouped(args.expired as f64);
    let title = format!(
        "claims at {} a second while {expired} records are pruned in {:.1} s: latency in ms",
        grouped(f64::from(PACE)),
        began.elapsed().as_secs_f64()
    );
    let mut table = Table::new(title, ["", "p50", "p99", "max"]);
    for (name, measured) in [("before", &before), ("meanwhile", &during)] {
        let latencies = [50.0, 99.0, 100.0].map(|percent| number(measured.millis(percent)));
        table.row(std::iter::once(name.to_owned()).chain(latencies));
    }
    report.table(table);
    let name = format!("p99 of claims while {expired} records are pruned, vs before");
    report.at_most(&name, during.millis(99.0) / before.millis(99.0), 3.0);
    Ok(())
}
