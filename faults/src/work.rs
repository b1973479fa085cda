//! What a client asks for: the same bytes each time, as semel compares them.

use serde::{Deserialize, Serialize};

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) key: String,
    pub(crate) intent: u32,
    /// How long the handler takes before its effect, and after it.
    pub(crate) work_ms: u64,
    /// The first attempt is to say that nothing happened.
    pub(crate) turned_away_first: bool,
}
