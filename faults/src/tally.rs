//! The numbers of injected faults.

use std::collections::BTreeMap;

/// The name under which answered requests are counted.
pub(crate) const REQUESTS: &str = "requests that were answered";

/// Counts by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn add(&mut self, name: &str, count: u64) {
        if count > 0 {
            *self.0.entry(name.to_owned()).or_default() += count;
        }
    }

    pub(crate) fn take_in(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// The number of injected faults whose names begin with this prefix.
    pub(crate) fn of(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}
