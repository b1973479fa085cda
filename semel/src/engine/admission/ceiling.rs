//! A switch that stops new keys while the store is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A switch that stops new keys: while the ceiling is reached, a key without a record is refused.
///
/// The application measures the size of its store from time to time and sets the switch; a claim
/// only reads the switch. Replays, renewals and completes continue, and no record is removed before
/// its retention is over. Clones share the switch.
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

    /// Returns `true` if new keys are refused.
    pub fn is_reached(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the switch. Returns its previous state.
    pub fn set_reached(&self, reached: bool) -> bool {
        self.0.swap(reached, Ordering::Relaxed)
    }
}
