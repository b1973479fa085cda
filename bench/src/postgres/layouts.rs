//! A load from several processes, as most services have it: few requests at a time in each of
//! many processes, each with its own connections.

use anyhow::Result;

use super::Args;
use super::best::Best;
use super::shapes::Shape;
use super::subject::{PER_CALL, SEMEL};
use super::sweep::{Point, Swept};
use crate::report::{Report, progress};
use crate::rounds::number;
use crate::server::Server;
use crate::table::Table;
use crate::worker::{self, Worked, Worker};

/// Processes, and the callers in each.
const LAYOUTS: [(usize, usize); 4] = [(4, 4), (4, 16), (16, 4), (16, 16)];

/// The layouts with a bound for semel compared with the best side that works call by call.
const BOUNDS: [((usize, usize), f64); 2] = [((4, 16), 1.5), ((16, 4), 1.0)];

/// Lets the sides take turns, for each layout. Their tables have to exist.
pub(super) async fn layouts(
    args: &Args,
    server: &Server,
    tables: &[&str],
    report: &mut Report,
) -> Result<()> {
    let names: Vec<&'static str> = [SEMEL, PER_CALL].into_iter().chain(Shape::ALL.map(Shape::name)).collect();
    let wanted = |name: &&str| args.sides.is_empty() || args.sides.iter().any(|side| name.starts_with(side));
    let mut all: Vec<Swept> = names.into_iter().filter(wanted).map(Swept::new).collect();
    for (processes, callers) in LAYOUTS {
        progress(format!("Postgres: claim + complete, {processes} processes with {callers} callers each"));
        server.empty_tables(tables).await?;
        all.iter_mut().for_each(|side| side.points.push(Point::default()));
        for _ in 0..args.rounds {
            for side in &mut all {
                let share = worker::Args {
                    url: server.url.clone(),
                    side: side.name.to_owned(),
                    schema: SEMEL.to_owned(),
                    callers,
                    // Their connections are opened within this time.
                    seconds: args.seconds.max(1.0),
                    connections: args.connections,
                };
                let mut workers = Vec::new();
                for _ in 0..processes {
                    workers.push(Worker::start(&share).await?);
                }
                let ends = Worker::together(workers).await?;
                let mean = |of: fn(&Worked) -> f64| ends.iter().map(of).sum::<f64>() / processes as f64;
                let Some(point) = side.points.last_mut() else { continue };
                point.rate.push(mean(|end| end.per_second) * processes as f64);
                point.p50.push(mean(|end| end.p50));
                point.p99.push(mean(|end| end.p99));
            }
        }
    }
    let columns = LAYOUTS.map(|(processes, callers)| format!("{processes} x {callers}"));
    let columns = || std::iter::once("processes x callers in each".to_owned()).chain(columns.clone());
    let mut rates = Table::new("claim + complete, new keys: operations a second, by layout", columns());
    let mut late = Table::new("claim + complete, new keys: p50 / p99 in ms, by layout", columns());
    for side in &all {
        let name = std::iter::once(side.name.to_owned());
        rates.row(name.clone().chain(side.points.iter().map(|point| point.rate.show())));
        let latency =
            |point: &Point| format!("{} / {}", number(point.p50.median()), number(point.p99.median()));
        late.row(name.chain(side.points.iter().map(latency)));
    }
    report.table(rates);
    report.table(late);
    for (layout, bound) in BOUNDS {
        let at = LAYOUTS.iter().position(|each| *each == layout);
        let Some(Best { ours, theirs }) = at.and_then(|at| Best::at(&all, at)) else { continue };
        let name = format!(
            "claim + complete, {} processes x {} callers, vs the best call by call",
            layout.0, layout.1
        );
        report.at_least(&name, ours.rate.over(&theirs.rate), bound);
    }
    Ok(())
}
