//! The body of a request: its bytes are equal each time, because semel compares them.

use serde::{Deserialize, Serialize};

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) key: String,
    pub(crate) intent: u32,
    /// The duration of the handler before its effect, and again after it.
    pub(crate) work_ms: u64,
    /// Set if the first attempt is to say that nothing happened.
    pub(crate) turned_away_first: bool,
}
