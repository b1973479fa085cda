//! The time limit for the answer of a server.

use std::time::Duration;

use tokio::time::timeout;

use crate::words::error::StoreError;

/// The answer, if it comes in time; otherwise the error names the server.
pub(in crate::store) async fn within<T>(
    limit: Duration,
    server: impl FnOnce() -> String,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(StoreError::unavailable(format!("{} did not answer within {limit:?}", server())))
    })
}
