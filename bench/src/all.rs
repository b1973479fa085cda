//! All benchmarks in one run, with a page and its plots.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::machine::{load_before, machine};
use crate::page::{Run, page};
use crate::report::{Item, Report, progress, seconds_so_far};
use crate::{gateway, http, memory, postgres, redis};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Five rounds instead of three, longer ones, and a table of ten million rows; about an hour
    #[arg(long)]
    long: bool,

    /// The folder of benchmarks.md and benchmarks/
    #[arg(long, default_value = "docs")]
    out: PathBuf,

    /// Only these parts, for a look at them: the page then has no others
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Memory,
    Postgres,
    Redis,
    Http,
    Gateway,
}

impl Part {
    fn measure(self, long: bool) -> Result<Report> {
        match self {
            Self::Memory => memory::measure(&memory::Args::of_page(long)),
            Self::Postgres => postgres::measure(&postgres::Args::of_page(long)),
            Self::Redis => redis::measure(&redis::Args::of_page(long)),
            Self::Http => http::measure(&http::Args::of_page(long)),
            Self::Gateway => gateway::measure(&gateway::Args::of_page(long)),
        }
    }
}

/// Measures everything. A missed figure is reported and does not fail the run.
pub(crate) fn run(args: &Args) -> Result<()> {
    let load = load_before();
    // Missing programs are built before the clock starts.
    if args.only.is_empty() || args.only.contains(&Part::Gateway) {
        gateway::build()?;
    }
    seconds_so_far();
    let pictures = args.out.join("benchmarks");
    std::fs::create_dir_all(&pictures).with_context(|| format!("could not make {}", pictures.display()))?;
    let mut reports = Vec::new();
    for part in [Part::Postgres, Part::Redis, Part::Http, Part::Gateway, Part::Memory] {
        if args.only.is_empty() || args.only.contains(&part) {
            let report = part.measure(args.long)?;
            report.print_figures();
            reports.push(report);
        }
    }
    for report in &reports {
        for item in &report.items {
            if let Item::Plot(plot) = item {
                let file = pictures.join(format!("{}.svg", plot.file));
                std::fs::write(&file, plot.svg())
                    .with_context(|| format!("could not write {}", file.display()))?;
            }
        }
    }
    let run = Run {
        command: format!("cargo run -p bench --release -- all{}", if args.long { " --long" } else { "" }),
        machine: machine(&std::env::temp_dir()).into_iter().chain([load]).collect(),
        seconds: seconds_so_far(),
        rounds: if args.long { "there are five rounds" } else { "there are three rounds" },
    };
    let file = args.out.join("benchmarks.md");
    std::fs::write(&file, page(&run, &reports))
        .with_context(|| format!("could not write {}", file.display()))?;
    let missed = reports.iter().flat_map(|report| &report.figures).filter(|figure| !figure.kept()).count();
    progress(format!("wrote {}; {missed} figures are out of their bounds", file.display()));
    Ok(())
}
