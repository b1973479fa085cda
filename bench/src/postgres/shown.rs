//! The results of a sweep: tables, plots, and the figures with their bounds.

use super::Args;
use super::best::Best;
use super::subject::{CRATESTACK, SEMEL};
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

/// The bounds of a number of callers: the rate of semel compared with the best side that works call
/// by call, and its p50 and p99 likewise.
struct Bounds {
    callers: usize,
    rate: f64,
    p50: f64,
    p99: f64,
}

const fn bounds(callers: usize, rate: f64, p50: f64, p99: f64) -> Bounds {
    Bounds { callers, rate, p50, p99 }
}

const FIRST: [Bounds; 7] = [
    bounds(1, 0.9, 1.15, 1.25),
    bounds(2, 1.0, 1.0, 1.25),
    bounds(4, 1.0, 1.0, 1.25),
    bounds(8, 1.0, 1.0, 1.25),
    bounds(16, 1.0, 1.0, 1.25),
    bounds(64, 2.5, 1.0, 1.25),
    bounds(256, 4.0, 1.0, 1.25),
];
const REPLAY: [Bounds; 4] = [
    bounds(1, 1.0, 1.0, 1.25),
    bounds(4, 1.0, 1.0, 1.25),
    bounds(16, 1.5, 1.0, 1.25),
    bounds(64, 2.5, 1.0, 1.25),
];

/// Compares semel with the best side that works call by call, and the log with that of cratestack.
pub(super) fn judge(args: &Args, load: Load, all: &[Swept], report: &mut Report) {
    let bounds: &[Bounds] = match load {
        Load::First => &FIRST,
        Load::Replay => &REPLAY,
    };
    for Bounds { callers, rate, p50, p99 } in bounds {
        let at = args.callers.iter().position(|each| each == callers);
        let Some(Best { ours, theirs }) = at.and_then(|at| Best::at(all, at)) else { continue };
        let plural = if *callers == 1 { "caller" } else { "callers" };
        let name = format!("{}, {callers} {plural}, vs the best call by call", load.name());
        report.at_least(&name, ours.rate.over(&theirs.rate), *rate);
        report.at_most(&format!("{name}: p50"), ours.p50.over(&theirs.p50), *p50);
        report.at_most(&format!("{name}: p99"), ours.p99.over(&theirs.p99), *p99);
    }
    let named = |name: &str| all.iter().find(|side| side.name == name);
    let (Some(semel), Some(cratestack)) = (named(SEMEL), named(CRATESTACK)) else { return };
    let outside: &[(usize, f64)] = match load {
        Load::First => &[(256, 10.0), (64, 5.0), (1, 1.2)],
        Load::Replay => &[(64, 30.0)],
    };
    for (callers, bound) in outside {
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
