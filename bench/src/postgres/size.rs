//! The effect of the size of the table.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Args;
use super::pool::POOL;
use super::subject::{PerCall, Semel, Subject};
use crate::load::{flat_out, uuid_v4, uuid_v7};
use crate::plot::{Line, Plot, Shape};
use crate::report::{Report, progress};
use crate::rounds::{Rounds, grouped, number};
use crate::server::Server;
use crate::table::Table;

const CALLERS: usize = 32;

/// The schema with a table of this many rows.
fn schema(rows: u64) -> String {
    format!("rows_{rows}")
}

async fn first_of(side: Arc<dyn Subject>, key: String) -> Result<()> {
    side.first(&key).await
}

/// Throughput on tables of several sizes, in turns; and the access paths of the statements.
pub(super) async fn rows(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let mut sizes: Vec<u64> = [0, 100_000, 1_000_000].into_iter().filter(|rows| *rows < args.rows).collect();
    sizes.push(args.rows);
    let mut sides: Vec<[(Arc<dyn Subject>, Rounds); 2]> = Vec::new();
    let mut largest = None;
    for size in &sizes {
        let semel = Arc::new(Semel::connect(&server.url, args.connections, &schema(*size)).await?);
        largest = Some(Arc::clone(&semel));
        // Plans are made now, on an empty table, and must suit the large one.
        semel.first("planned").await?;
        let per_call = PerCall::connect(&server.url, POOL, &schema(*size)).await?;
        if *size > 0 {
            server.fill(&schema(*size), *size, false).await?;
        }
        sides.push([(semel, Rounds::default()), (Arc::new(per_call), Rounds::default())]);
    }
    progress(format!("Postgres: claim + complete on tables of several sizes, {CALLERS} callers"));
    let largest = largest.context("there is a table at least")?;
    largest.report().await?;
    let (read_whole, _) = server.scans(&schema(args.rows)).await?;
    for _ in 0..args.rounds {
        for (side, rates) in sides.iter_mut().flatten() {
            let (side, length) = (Arc::clone(side), Duration::from_secs_f64(args.seconds));
            let measured = flat_out(CALLERS, length, move |_| first_of(Arc::clone(&side), uuid_v4())).await?;
            rates.push(measured.per_second);
        }
    }
    largest.report().await?;
    let (whole, by_index) = server.scans(&schema(args.rows)).await?;
    show(&sizes, &sides, report);
    println!(
        "  the largest table was read whole {} times, through its index {by_index} times",
        whole - read_whole
    );
    if let [[(_, empty), _], .., [(_, large), _]] = sides.as_slice() {
        let name =
            format!("throughput at {} rows vs an empty table, {CALLERS} callers", grouped(args.rows as f64));
        report.at_least(&name, large.over(empty), 0.65);
    }
    report.at_most("how often statements read the large table whole", (whole - read_whole) as f64, 0.0);
    order(args, server, &sides, report).await
}

fn show(sizes: &[u64], sides: &[[(Arc<dyn Subject>, Rounds); 2]], report: &mut Report) {
    let title =
        format!("claim + complete, new keys: operations a second, by rows of the table, {CALLERS} callers");
    let mut table = Table::new(title, ["rows", "semel", "per call"]);
    for (size, [(_, semel), (_, per_call)]) in sizes.iter().zip(sides) {
        table.row([grouped(*size as f64), semel.show(), per_call.show()]);
    }
    report.table(table);
    let line = |at: usize, name: &str, colour| Line {
        name: name.to_owned(),
        limit: false,
        colour,
        values: sides.iter().map(|side| side[at].1.clone()).collect(),
    };
    report.plot(Plot {
        file: "rows-throughput",
        title: format!("Postgres, claim + complete by the size of the table, {CALLERS} callers"),
        measure: "operations a second",
        shape: Shape::Lines {
            steps: sizes
                .iter()
                .map(|size| if *size == 0 { "empty".to_owned() } else { grouped(*size as f64) })
                .collect(),
            over: "rows before",
            logarithmic: false,
            lines: vec![line(0, "semel", 0), line(1, "per call", 2)],
        },
    });
}

/// Compares keys with a time in front with keys without one, on the largest table, each after a
/// checkpoint, when every page is logged whole once.
async fn order(
    args: &Args,
    server: &Server,
    sides: &[[(Arc<dyn Subject>, Rounds); 2]],
    report: &mut Report,
) -> Result<()> {
    let Some([(side, _), _]) = sides.last() else { return Ok(()) };
    progress("Postgres: keys in the order of time");
    let (mut random, mut in_order) = (Rounds::default(), Rounds::default());
    for _ in 0..args.rounds {
        for (key, bytes) in [(uuid_v4 as fn() -> String, &mut random), (uuid_v7, &mut in_order)] {
            server.run("checkpoint").await?;
            let before = server.log_bytes().await?;
            let (side, length) = (Arc::clone(side), Duration::from_secs_f64(args.seconds));
            let done = flat_out(CALLERS, length, move |_| first_of(Arc::clone(&side), key())).await?;
            bytes.push((server.log_bytes().await? - before) / done.operations.max(1) as f64);
        }
    }
    let rows = grouped(args.rows as f64);
    report.text(format!(
        "Right after a checkpoint, at {rows} rows, a claim + complete writes {} bytes of log with random keys (UUIDv4), and {} with keys \
         that begin with their time (UUIDv7).",
        number(random.median()),
        number(in_order.median())
    ));
    let name = format!("log bytes per claim + complete at {rows} rows, UUIDv7 vs UUIDv4");
    report.at_most(&name, in_order.over(&random), 0.3);
    Ok(())
}
