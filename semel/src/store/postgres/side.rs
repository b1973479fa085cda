//! The connection for everything except batches, made when it is first needed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::migrate;
use super::options::PostgresOptions;
use super::session::{LONG, Session};
use crate::words::error::StoreError;

pub(super) struct Side {
    options: Arc<PostgresOptions>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Side {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { options, session: Mutex::new(None) }
    }

    /// The connection, or a new one if it was lost.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut kept = self.session.lock().await;
        if let Some(session) = kept.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::open(&self.options).await?);
        *kept = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The answer to a question over this connection. If it does not come in time, the connection
    /// is given up, so that the next question does not wait for the same server process.
    pub(super) async fn in_time<T>(
        &self,
        session: &Arc<Session>,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let is_over = |kept: &Arc<Session>| Arc::ptr_eq(kept, session);
        self.up_to(self.options.timeout, answer, is_over).await
    }

    /// The result of work that may take long, over the present connection.
    pub(super) async fn in_long_time<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.up_to(self.options.timeout * LONG, answer, |_| true).await
    }

    async fn up_to<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, StoreError>>,
        is_over: impl Fn(&Arc<Session>) -> bool,
    ) -> Result<T, StoreError> {
        if let Ok(answer) = timeout(limit, answer).await {
            return answer;
        }
        self.session.lock().await.take_if(|kept| is_over(kept));
        Err(StoreError::unavailable(format!("Postgres did not answer within {limit:?}")))
    }

    /// The connection, after checking that the schema exists and fits. It is checked each time: a
    /// newer semel may have migrated the schema since, and listings, counts and prunes are rare
    /// enough.
    pub(super) async fn checked(&self) -> Result<Arc<Session>, StoreError> {
        let session = self.session().await?;
        self.in_time(&session, migrate::check(&session.client, &self.options.schema)).await?;
        Ok(session)
    }

    /// A statement for the schema.
    pub(super) fn statement(&self, file: &str) -> String {
        self.options.schema.statement(file)
    }

    /// A statement for the schema, with this table in the place of `semel.records`.
    pub(super) fn statement_on(&self, file: &str, table: &str) -> String {
        self.options.schema.statement_on(file, table)
    }
}
