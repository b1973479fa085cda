//! The table of recorded figures on a page for people.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};

/// The line above the rows.
const HEAD: &str = "| operation | instructions |";
const RULE: &str = "| --- | ---: |";

/// The text in front of the conditions of the figures.
const MADE_WITH: &str = "Recorded with ";

/// The number of instructions of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) operation: String,
    pub(crate) instructions: u64,
}

/// The recorded figures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) made_with: String,
    pub(crate) counts: Vec<Count>,
}

/// The comparison of an operation with its record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within a tenth.
    Same {
        recorded: u64,
        now: Count,
    },
    Grown {
        recorded: u64,
        now: Count,
    },
    Shrunk {
        recorded: u64,
        now: Count,
    },
    /// The operation was not recorded.
    New {
        now: Count,
    },
    /// The operation no longer exists.
    Gone {
        operation: String,
    },
}

impl Table {
    /// Reads the table of a page.
    pub(crate) fn parse(page: &str) -> Result<Self> {
        let made_with = page.lines().find_map(|line| line.strip_prefix(MADE_WITH)?.strip_suffix('.'));
        let made_with = made_with.with_context(|| format!("there is no line {MADE_WITH:?}"))?;
        let mut lines = page.lines().skip_while(|line| *line != HEAD).skip(1);
        ensure!(lines.next() == Some(RULE), "there is no table that begins with {HEAD:?}");
        let counts = lines.take_while(|line| line.starts_with('|')).map(row).collect::<Result<_>>()?;
        Ok(Self { made_with: made_with.to_owned(), counts })
    }

    /// The page with this table instead of its own.
    pub(crate) fn written_into(&self, page: &str) -> Result<String> {
        Self::parse(page)?;
        let mut lines = Vec::new();
        let mut old = page.lines().peekable();
        while let Some(line) = old.next() {
            if line.starts_with(MADE_WITH) {
                lines.push(format!("{MADE_WITH}{}.", self.made_with));
                continue;
            }
            lines.push(line.to_owned());
            if line == HEAD {
                while old.next_if(|line| line.starts_with('|')).is_some() {}
                lines.push(RULE.to_owned());
                lines.extend(self.counts.iter().map(ToString::to_string));
            }
        }
        Ok(lines.join("\n") + "\n")
    }

    /// The comparison of every operation.
    pub(crate) fn judge(&self, counts: &[Count]) -> Vec<Verdict> {
        let recorded = |operation: &str| self.counts.iter().find(|count| count.operation == operation);
        let judged = counts.iter().map(|now| match recorded(&now.operation) {
            Some(before) => judge(before.instructions, now.clone()),
            None => Verdict::New { now: now.clone() },
        });
        let is_gone = |count: &&Count| counts.iter().all(|now| now.operation != count.operation);
        let gone = self.counts.iter().filter(is_gone);
        judged.chain(gone.map(|count| Verdict::Gone { operation: count.operation.clone() })).collect()
    }
}

impl Verdict {
    /// Returns `true` if the check fails: also if the table lacks an operation, which could then
    /// grow unnoticed.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Self::Grown { .. } | Self::New { .. } | Self::Gone { .. })
    }
}

/// A tenth is more than the effect of another order of functions or another processor, and less
/// than a copy of a body.
fn judge(recorded: u64, now: Count) -> Verdict {
    let instructions = now.instructions;
    if instructions * 10 > recorded * 11 {
        Verdict::Grown { recorded, now }
    } else if instructions * 10 < recorded * 9 {
        Verdict::Shrunk { recorded, now }
    } else {
        Verdict::Same { recorded, now }
    }
}

fn row(line: &str) -> Result<Count> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [operation, instructions] = cells[..] else { bail!("not two cells: {line}") };
    let instructions =
        instructions.replace(',', "").parse().with_context(|| format!("not a number: {line}"))?;
    Ok(Count { operation: operation.to_owned(), instructions })
}

/// The form of a row of the table.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} |", self.operation, grouped(self.instructions))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same { recorded, now } | Self::Grown { recorded, now } | Self::Shrunk { recorded, now } => {
                let change = (now.instructions as f64 / *recorded as f64 - 1.0) * 100.0;
                let (now, before) = (now, grouped(*recorded));
                write!(
                    f,
                    "{}: {}, recorded {before} ({change:+.1} %)",
                    now.operation,
                    grouped(now.instructions)
                )
            }
            Self::New { now } => {
                write!(f, "{}: {}, not recorded yet", now.operation, grouped(now.instructions))
            }
            Self::Gone { operation } => write!(f, "{operation}: recorded, but not there any more"),
        }
    }
}

/// A number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod facts {
    use super::*;

    const PAGE: &str = "# Figures\n\nRecorded with rustc 1.95.0 (59807616e 2026-04-14).\n\n| operation | instructions |\n\
                        | --- | ---: |\n| parse `a` | 961 |\n| decide | 64,389 |\n\nMore.\n";

    fn count(operation: &str, instructions: u64) -> Count {
        Count { operation: operation.to_owned(), instructions }
    }

    fn table() -> Table {
        let made_with = "rustc 1.95.0 (59807616e 2026-04-14)".to_owned();
        Table { made_with, counts: vec![count("parse `a`", 961), count("decide", 64_389)] }
    }

    #[test]
    fn table_is_read_from_its_page() {
        assert_eq!(Table::parse(PAGE).unwrap(), table());
    }

    #[test]
    fn page_without_a_whole_table_is_an_error() {
        for (part, instead) in [(HEAD, ""), (RULE, ""), (MADE_WITH, ""), ("961", "many"), ("| 961 |", "|")] {
            assert!(Table::parse(&PAGE.replace(part, instead)).is_err(), "without {part}");
        }
    }

    #[test]
    fn recording_replaces_the_figures_and_nothing_else() {
        assert_eq!(table().written_into(PAGE).unwrap(), PAGE);
        let newer = Table { made_with: "rustc 2".to_owned(), counts: vec![count("sweep", 1_234_567)] };
        let page = newer.written_into(PAGE).unwrap();
        assert_eq!(Table::parse(&page).unwrap(), newer);
        assert!(
            page.starts_with("# Figures\n\nRecorded with rustc 2.\n")
                && page.ends_with("| 1,234,567 |\n\nMore.\n")
        );
    }

    #[test]
    fn only_a_change_of_more_than_a_tenth_matters() {
        let judge = |now| judge(1_000, count("decide", now));
        for now in [900, 1_000, 1_100] {
            assert!(matches!(judge(now), Verdict::Same { .. }), "{now}");
        }
        assert!(matches!(judge(1_101), Verdict::Grown { recorded: 1_000, .. }));
        assert!(matches!(judge(899), Verdict::Shrunk { recorded: 1_000, .. }));
        let faults = [899, 1_100, 1_101].map(|now| judge(now).is_fault());
        assert_eq!(faults, [false, false, true]);
        assert_eq!(judge(1_200).to_string(), "decide: 1,200, recorded 1,000 (+20.0 %)");
    }

    #[test]
    fn operations_that_come_and_go_are_noticed() {
        let verdicts = table().judge(&[count("decide", 64_389), count("sweep", 5)]);
        let expected = [
            Verdict::Same { recorded: 64_389, now: count("decide", 64_389) },
            Verdict::New { now: count("sweep", 5) },
            Verdict::Gone { operation: "parse `a`".to_owned() },
        ];
        assert_eq!(verdicts, expected);
        assert_eq!(verdicts.iter().map(Verdict::is_fault).collect::<Vec<_>>(), [false, true, true]);
    }
}
