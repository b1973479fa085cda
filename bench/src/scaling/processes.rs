//! The cost of an operation by the number of processes.

use std::time::Duration;

use anyhow::Result;

use super::cost::{Cost, Used};
use super::{CALLERS, show};
use crate::postgres::{Connections, SEMEL, Semel};
use crate::report::{Report, progress};
use crate::server::Server;
use crate::worker::{self, Worked, Worker};

const SCHEMA: &str = "processes";

/// The callers of the other tables, divided among a growing number of processes.
pub(super) async fn by_processes(args: &super::Args, server: &Server, report: &mut Report) -> Result<()> {
    let counts = [1, 2, 4];
    let mut all = counts.map(|_| Cost::default());
    let _migrated = Semel::connect(&server.url, Connections::DEFAULT, SCHEMA).await?;
    progress("scaling: by processes");
    for _ in 0..args.rounds() {
        server.empty_tables(&["processes.records"]).await?;
        for (processes, cost) in counts.into_iter().zip(&mut all) {
            let share = worker::Args {
                url: server.url.clone(),
                side: SEMEL.to_owned(),
                schema: SCHEMA.to_owned(),
                callers: CALLERS / processes,
                seconds: args.seconds(),
                connections: Connections::DEFAULT,
            };
            let mut workers = Vec::new();
            for _ in 0..processes {
                workers.push(Worker::start(&share).await?);
            }
            let before = Used::so_far(server).await?;
            let ends = Worker::together(workers).await?;
            let sum = |of: fn(&Worked) -> f64| ends.iter().map(of).sum::<f64>();
            let most = |of: fn(&Worked) -> f64| ends.iter().map(of).fold(0.0, f64::max);
            let operations = sum(|end| end.operations);
            cost.rate.push(sum(|end| end.per_second));
            cost.p50.push(most(|end| end.p50));
            cost.p99.push(most(|end| end.p99));
            cost.client_micros.push(sum(|end| end.processor_seconds) * 1e6 / operations.max(1.0));
            tokio::time::sleep(Duration::from_millis(300)).await;
            before.add_until(&Used::so_far(server).await?, operations as u64, cost);
        }
    }
    let rows = counts.into_iter().map(|count| count.to_string()).zip(all).collect();
    let title = format!("claim + complete by processes, {CALLERS} callers divided between them");
    show(&title, "processes", rows, report);
    Ok(())
}
