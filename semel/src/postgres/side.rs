//! A connection beside those that commit batches, made when it is first needed.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::migrate;
use super::options::PostgresOptions;
use super::session::{Session, within};
use crate::error::StoreError;

pub(super) struct Side {
    options: Arc<PostgresOptions>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Side {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { options, session: Mutex::new(None) }
    }

    /// The connection, or a new one if it is gone.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut kept = self.session.lock().await;
        if let Some(session) = kept.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::open(&self.options).await?);
        *kept = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Takes leave of a connection that does not answer, unless another has taken its place.
    pub(super) async fn give_up(&self, session: &Arc<Session>) {
        let mut kept = self.session.lock().await;
        if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
            *kept = None;
        }
    }

    /// The answer, if it comes in time.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.options.timeout, answer).await
    }

    /// The connection, if the schema is there and fits. Asked each time: a newer semel may have migrated it
    /// since, and whoever lists, counts or prunes does so seldom enough.
    pub(super) async fn checked(&self) -> Result<Arc<Session>, StoreError> {
        let session = self.session().await?;
        within(self.options.timeout, migrate::check(&session.client, &self.options.schema)).await?;
        Ok(session)
    }

    /// A statement for the schema.
    pub(super) fn statement(&self, file: &str) -> String {
        self.options.schema.statement(file)
    }
}
