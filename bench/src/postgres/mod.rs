//! Benchmarks on Postgres: semel compared with other designs and with pgbench, on one durable
//! server.
//!
//! The sides take turns within each round, so that other load on the machine affects all of them;
//! medians count.
//!
//! - `subject`, `shapes`, `pool`: the measured sides: semel, one statement per call, and other
//!   orders of statements.
//! - `raw`: pgbench with the statements of the store.
//! - `sweep`, `shown`: a load by the number of callers, and its tables and plots.
//! - `layouts`: a load by processes and their callers.
//! - `far`: Postgres in another zone.
//! - `best`: semel beside the fastest side that works call by call.
//! - `prune`, `size`: the effect of pruning, and of the size of the table.

mod best;
mod far;
mod layouts;
mod pool;
mod prune;
mod raw;
mod shapes;
mod shown;
mod size;
mod subject;
mod sweep;

use anyhow::Result;
use clap::ValueEnum;

use crate::disk;
use crate::report::Report;
use crate::server::Server;
use sweep::{Load, Sides};

pub(crate) use subject::{Connections, SEMEL, Semel, connect};

/// The parts to measure, and their length.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A server to measure instead of starting one; its database gets schemas and tables
    #[arg(long)]
    url: Option<String>,

    /// Only these figures; all unless given
    #[arg(long, value_enum)]
    only: Vec<Figure>,

    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds for each side in each round; pgbench takes whole ones
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// The numbers of concurrent callers, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = CALLERS)]
    callers: Vec<usize>,

    /// Only the sides whose name begins with one of these
    #[arg(long)]
    sides: Vec<String>,

    #[command(flatten)]
    connections: Connections,

    /// Rows of the largest table
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,

    /// Expired records that are pruned
    #[arg(long, default_value_t = 1_000_000)]
    expired: u64,
}

const CALLERS: [usize; 7] = [1, 2, 4, 8, 16, 64, 256];

impl Args {
    /// The settings for the page of all benchmarks.
    pub(crate) fn of_page(long: bool) -> Self {
        let (rounds, seconds, rows, expired) =
            if long { (5, 2.0, 10_000_000, 1_000_000) } else { (3, 0.4, 1_000_000, 200_000) };
        let connections = Connections::DEFAULT;
        let (url, only, sides, callers) = (None, Vec::new(), Vec::new(), CALLERS.to_vec());
        Self { url, only, rounds, seconds, callers, sides, connections, rows, expired }
    }
}

/// A figure, or a group that is measured together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The disk by itself
    Disk,
    /// Claim + complete of new keys, and the bytes of the log per operation
    First,
    /// Repeats, and the bytes of the log per repeat
    Replay,
    /// Claim + complete of new keys from several processes
    Layouts,
    /// Claim + complete of new keys over a network that delays
    Far,
    /// Latency of claims while expired records are pruned
    Prune,
    /// Throughput by the size of the table, and bytes of the log on a large table by kind of key
    Rows,
}

/// Measures the chosen figures, and compares them with the bounds.
pub(crate) fn run(args: &Args) -> Result<()> {
    measure(args)?.finish()
}

pub(crate) fn measure(args: &Args) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(args.url.as_deref()).await?;
        let mut report = Report::new("Postgres");
        report.version("Postgres", format!("{}, `fsync` and `synchronous_commit` on", server.version));
        report.version("cratestack", "0.8.15");
        let wants = |figure| args.only.is_empty() || args.only.contains(&figure);
        if wants(Figure::Disk) {
            disk::measure(&server.folder(), args.rounds, args.seconds, &mut report)?;
        }
        if wants(Figure::First) || wants(Figure::Replay) || wants(Figure::Layouts) || wants(Figure::Far) {
            let sides = Sides::connect(args, &server).await?;
            let mut swept = Vec::new();
            for (figure, load) in [(Figure::First, Load::First), (Figure::Replay, Load::Replay)] {
                if wants(figure) {
                    let all = sweep::sweep(args, &server, &sides, load).await?;
                    shown::show(args, load, &all, &mut report);
                    shown::judge(args, load, &all, &mut report);
                    swept.push(all);
                }
            }
            if wants(Figure::Layouts) {
                layouts::layouts(args, &server, &sides.tables(), &mut report).await?;
            }
            if wants(Figure::Far) {
                far::far(args, &server, &mut report).await?;
            }
            if let [first, replay] = swept.as_slice() {
                shown::show_log(args, first, replay, &mut report);
                sweep::noise(args, &server, &sides, &mut report).await?;
            }
        }
        if wants(Figure::Rows) {
            size::rows(args, &server, &mut report).await?;
        }
        if wants(Figure::Prune) {
            prune::prune(args, &server, &mut report).await?;
        }
        Ok(report)
    })
}
