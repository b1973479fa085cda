//! The figures beside their bounds.

use anyhow::{Result, bail};

/// The figures with their bounds, and whether all were kept.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<String>,
    missed: usize,
}

impl Report {
    pub(crate) fn at_least(&mut self, figure: &str, found: f64, bound: f64) {
        self.add(figure, found, found >= bound, &format!("at least {bound}"));
    }

    pub(crate) fn at_most(&mut self, figure: &str, found: f64, bound: f64) {
        self.add(figure, found, found <= bound, &format!("at most {bound}"));
    }

    fn add(&mut self, figure: &str, found: f64, kept: bool, bound: &str) {
        self.missed += usize::from(!kept);
        let mark = if kept { "" } else { "   MISSED" };
        self.lines.push(format!("{figure:<74} {found:>8.2}   {bound}{mark}"));
    }

    pub(crate) fn finish(self) -> Result<()> {
        println!("\n{:<74} {:>8}   bound", "figure", "found");
        self.lines.iter().for_each(|line| println!("{line}"));
        if self.missed > 0 {
            bail!("{} figures are out of their bounds", self.missed);
        }
        Ok(())
    }
}
