//! A switch that says that the store keeps as much as it may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A ceiling for what a store keeps: while it is reached, no key is claimed that has no record.
///
/// It is a switch. A task in the background looks at the size of the store from time to time, and
/// sets it; a claim only looks at the switch. Replays, renewals and completes go on, and no record
/// is removed before its time. Clones are the same switch.
///
/// ```
/// use semel::{MemoryStore, Once};
/// use semel::admin::Ceiling;
///
/// let (store, ceiling) = (MemoryStore::new(), Ceiling::new());
/// let once = Once::new(store.clone()).with_ceiling(ceiling.clone());
/// // Every few seconds:
/// ceiling.set_reached(store.size().records >= Some(500_000));
/// # assert!(!ceiling.is_reached());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Ceiling(Arc<AtomicBool>);

impl Ceiling {
    /// A ceiling that is not reached.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether new keys are refused.
    pub fn is_reached(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Says whether the store keeps as much as it may, and returns what was said before.
    pub fn set_reached(&self, reached: bool) -> bool {
        self.0.swap(reached, Ordering::Relaxed)
    }
}
