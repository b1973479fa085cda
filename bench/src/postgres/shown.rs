//! The results of a sweep: tables, plots, and the figures with their bounds.

use super::Args;
use super::sweep::{Load, Point, Swept, USUAL};
use crate::plot::{Line, Plot, Shape};
use crate::report::Report;
use crate::rounds::{Rounds, number};
use crate::table::Table;

/// Tables and plots of a sweep.
pub(super) fn show(args: &Args, load: Load, all: &[Swept], report: &mut Report) {
    let callers: Vec<String> = args.callers.iter().map(ToString::to_string).collect();
    let columns = || {
        let each = callers
            .iter()
            .map(|callers| if callers == "1" { "1 caller".to_owned() } else { callers.clone() });
        std::iter::once(load.name().to_owned()).chain(each)
    };
    let mut rates = Table::new(format!("{}: operations a second, by callers", load.name()), columns());
    let mut late = Table::new(format!("{}: p50 / p99 in ms, by callers", load.name()), columns());
    for side in all {
        let cells = |cell: fn(&Point) -> String| {
            std::iter::once(side.name.to_owned()).chain(side.points.iter().map(cell)).collect::<Vec<_>>()
        };
        rates.row(cells(|point| point.rate.show()));
        late.row(cells(|point| format!("{} / {}", number(point.p50.median()), number(point.p99.median()))));
    }
    let lines = |value: fn(&Point) -> Rounds| {
        let line = |(colour, side): (usize, &Swept)| Line {
            name: side.name.to_owned(),
            limit: side.limit,
            colour,
            values: side.points.iter().map(value).collect(),
        };
        Shape::Lines {
            steps: callers.clone(),
            over: "callers",
            logarithmic: true,
            lines: all.iter().enumerate().map(line).collect(),
        }
    };
    let [rate_file, late_file] = match load {
        Load::First => ["first-throughput", "first-p99"],
        Load::Replay => ["replay-throughput", "replay-p99"],
    };
    report.table(rates);
    report.plot(Plot {
        file: rate_file,
        title: format!("Postgres, {}", load.name()),
        measure: "operations a second, both axes logarithmic",
        shape: lines(|point| point.rate.clone()),
    });
    report.table(late);
    report.plot(Plot {
        file: late_file,
        title: format!("Postgres, {}: the slowest of a hundred", load.name()),
        measure: "p99 in milliseconds, both axes logarithmic",
        shape: lines(|point| point.p99.clone()),
    });
}

impl Swept {
    /// The result with this many callers, if it was measured.
    fn with(&self, args: &Args, callers: usize) -> Option<&Point> {
        self.points.get(args.callers.iter().position(|each| *each == callers)?)
    }
}

/// Compares semel with cratestack, where they were measured.
pub(super) fn judge(args: &Args, load: Load, all: &[Swept], report: &mut Report) {
    let bounds: &[(usize, f64)] = match load {
        Load::First => &[(256, 10.0), (64, 5.0), (1, 1.2)],
        Load::Replay => &[(64, 30.0)],
    };
    let [semel, cratestack, ..] = all else { return };
    for (callers, bound) in bounds {
        let (Some(ours), Some(theirs)) = (semel.with(args, *callers), cratestack.with(args, *callers)) else {
            continue;
        };
        let plural = if *callers == 1 { "caller" } else { "callers" };
        let name = format!("{}, {callers} {plural}, vs cratestack-sqlx", load.name());
        report.at_least(&name, ours.rate.over(&theirs.rate), *bound);
    }
    let (Some(ours), Some(theirs)) = (semel.with(args, USUAL), cratestack.with(args, USUAL)) else { return };
    match load {
        Load::First => report.at_most(
            "log bytes per claim + complete, 200-byte body, vs cratestack-sqlx",
            ours.log.over(&theirs.log),
            0.92,
        ),
        // The server itself writes a line to its log every now and then.
        Load::Replay => {
            report.at_most("log bytes per replay", ours.log.map(|bytes| (bytes * 100.0).floor() / 100.0), 0.0)
        }
    };
}

/// The bytes of the log of both loads, side by side.
pub(super) fn show_log(args: &Args, first: &[Swept], replay: &[Swept], report: &mut Report) {
    let title = format!("bytes of the write-ahead log for each operation, {USUAL} callers");
    let mut table = Table::new(title, ["", "claim + complete", "replay"]);
    let mut bars = Vec::new();
    for (first, replay) in first.iter().zip(replay) {
        let (Some(new), Some(old)) = (first.with(args, USUAL), replay.with(args, USUAL)) else { return };
        table.row([first.name.to_owned(), new.log.show(), number(old.log.median().max(0.0))]);
        bars.push((first.name.to_owned(), new.log.clone()));
    }
    report.table(table);
    report.plot(Plot {
        file: "log-bytes",
        title: format!("Postgres, write-ahead log of a claim + complete, {USUAL} callers"),
        measure: "bytes for each operation, 200-byte body; less is better",
        shape: Shape::Bars(bars),
    });
}
