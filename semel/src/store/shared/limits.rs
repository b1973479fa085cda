//! The limits of the stores' options.

use std::time::Duration;

use crate::words::error::StoreError;

#[cfg(any(feature = "postgres", feature = "redis"))]
/// The largest number of connections to a server. More connections make the batches smaller, not
/// the store faster.
pub(crate) const MAX_CONNECTIONS: usize = 16;
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(any(feature = "postgres", feature = "redis"))]
/// Returns this number of connections, if it is neither zero nor too large.
pub(crate) fn connections(found: usize) -> Result<usize, StoreError> {
    if (1..=MAX_CONNECTIONS).contains(&found) {
        return Ok(found);
    }
    Err(StoreError::refused(format!("{found} connections are not within 1 to {MAX_CONNECTIONS}")))
}

/// Returns this timeout, if it is neither too short nor too long.
pub(crate) fn timeout(found: Duration, min: Duration) -> Result<Duration, StoreError> {
    if (min..=MAX_TIMEOUT).contains(&found) {
        return Ok(found);
    }
    Err(StoreError::refused(format!("timeout of {found:?} is not within {min:?} to {MAX_TIMEOUT:?}")))
}
