//! The limits of the stores' options, checked once when a store is opened.

use std::time::Duration;

use crate::words::error::StoreError;

#[cfg(any(feature = "postgres", feature = "redis"))]
/// The largest number of connections to a server. More connections make the batches smaller, not
/// the store faster.
pub(crate) const MAX_CONNECTIONS: usize = 16;
/// The longest timeout of a connection or a lock.
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(any(feature = "postgres", feature = "redis"))]
/// Refuses no connections, and too many.
pub(crate) fn connections(found: usize) -> Result<(), StoreError> {
    if (1..=MAX_CONNECTIONS).contains(&found) {
        return Ok(());
    }
    Err(StoreError::refused(format!("with_connections({found}): set 1 to {MAX_CONNECTIONS} connections")))
}

#[cfg(feature = "postgres")]
/// Refuses too many additional connections.
pub(crate) fn additional_connections(found: usize) -> Result<(), StoreError> {
    if found <= MAX_CONNECTIONS {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "with_additional_connections({found}): set 0 to {MAX_CONNECTIONS} connections"
    )))
}

/// Refuses a time that is too short or too long, and names the setter that was given it.
pub(crate) fn time(setter: &str, found: Duration, min: Duration, max: Duration) -> Result<(), StoreError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(StoreError::refused(format!("{setter}({found:?}): set a time from {min:?} to {max:?}")))
}
