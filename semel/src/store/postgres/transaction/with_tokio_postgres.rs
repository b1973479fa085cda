//! The transactions of tokio-postgres.

use async_trait::async_trait;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::{Attempt, Completion, InTransaction, unreadable};
use crate::store::postgres::errors;
use crate::words::error::StoreError;

#[async_trait]
impl InTransaction for Transaction<'_> {
    async fn lock(&mut self, statement: &str, attempt: &Attempt) -> Result<String, StoreError> {
        let Attempt { id, token, fence } = attempt;
        ask(self, statement, &[id, token, fence]).await
    }

    async fn complete(&mut self, statement: &str, completion: &Completion) -> Result<String, StoreError> {
        let Completion { attempt: Attempt { id, token, fence }, status, subtype, headers, body } = completion;
        ask(self, statement, &[id, token, fence, status, subtype, headers, body]).await
    }
}

async fn ask(
    transaction: &Transaction<'_>,
    statement: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<String, StoreError> {
    let row = transaction.query_one(statement, parameters).await.map_err(errors::of_question)?;
    row.try_get(0).map_err(unreadable)
}
