//! The results of a benchmark: tables, plots, and the figures with their bounds.

use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::plot::Plot;
use crate::rounds::{Rounds, number};
use crate::table::Table;

/// The results of one benchmark. They are printed as they come in, and kept for the page.
pub(crate) struct Report {
    pub(crate) heading: &'static str,
    pub(crate) items: Vec<Item>,
    pub(crate) figures: Vec<Figure>,
    /// The measured programs, with their versions.
    pub(crate) versions: Vec<(&'static str, String)>,
}

/// A table or a plot.
pub(crate) enum Item {
    Text(String),
    Table(Table),
    Plot(Plot),
}

/// A figure with its bound.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) found: Rounds,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn kept(&self) -> bool {
        self.keeps(self.found.median())
    }

    fn keeps(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    pub(crate) fn bound(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

impl Report {
    pub(crate) fn new(heading: &'static str) -> Self {
        Self { heading, items: Vec::new(), figures: Vec::new(), versions: Vec::new() }
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        println!("\n{text}");
        self.items.push(Item::Text(text));
    }

    pub(crate) fn table(&mut self, table: Table) {
        print!("{}", table.text());
        self.items.push(Item::Table(table));
    }

    pub(crate) fn plot(&mut self, plot: Plot) {
        self.items.push(Item::Plot(plot));
    }

    pub(crate) fn version(&mut self, what: &'static str, version: impl Into<String>) {
        self.versions.push((what, version.into()));
    }

    pub(crate) fn at_least(&mut self, name: &str, found: impl Into<Rounds>, bound: f64) {
        self.add(name, found.into(), Bound::AtLeast(bound));
    }

    pub(crate) fn at_most(&mut self, name: &str, found: impl Into<Rounds>, bound: f64) {
        self.add(name, found.into(), Bound::AtMost(bound));
    }

    fn add(&mut self, name: &str, found: Rounds, bound: Bound) {
        self.figures.push(Figure { name: name.to_owned(), found, bound });
    }

    /// Prints the figures.
    pub(crate) fn print_figures(&self) {
        if self.figures.is_empty() {
            return;
        }
        let mut table = Table::new("figures", ["figure", "found", "bound", ""]);
        for figure in &self.figures {
            let mark = if figure.kept() { "" } else { "MISSED" };
            table.row([&figure.name, &number(figure.found.median()), &figure.bound(), mark]);
        }
        print!("{}", table.text());
    }

    /// Prints the figures, and fails if one is out of its bound.
    pub(crate) fn finish(self) -> Result<()> {
        self.print_figures();
        let missed = self.figures.iter().filter(|figure| !figure.kept()).count();
        if missed > 0 {
            bail!("{missed} figures are out of their bounds");
        }
        Ok(())
    }
}

/// Prints the present step, and the time so far.
pub(crate) fn progress(what: impl AsRef<str>) {
    println!("[{:>4.0} s] {}", seconds_so_far(), what.as_ref());
}

/// The run time of this program, from the first call on.
pub(crate) fn seconds_so_far() -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64()
}
