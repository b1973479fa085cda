//! semel beside the fastest side that works call by call.

use super::subject::SEMEL;
use super::sweep::{Point, Swept};

/// The results of semel, and those of the fastest other side.
pub(super) struct Best<'a> {
    pub(super) ours: &'a Point,
    pub(super) theirs: &'a Point,
}

impl<'a> Best<'a> {
    /// The results at this place of the sweep, if both were measured. pgbench is a limit, not a
    /// side.
    pub(super) fn at(all: &'a [Swept], at: usize) -> Option<Self> {
        let ours = all.iter().find(|side| side.name == SEMEL)?.points.get(at)?;
        let others = all.iter().filter(|side| side.name != SEMEL && !side.limit);
        let theirs = others
            .filter_map(|side| side.points.get(at))
            .max_by(|one, other| one.rate.median().total_cmp(&other.rate.median()))?;
        Some(Self { ours, theirs })
    }
}
