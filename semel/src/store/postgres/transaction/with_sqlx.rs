//! The transactions of sqlx, and its connections, for callers that send `begin` themselves.
//!
//! Two versions of sqlx have the same methods on types of their own, so the code stands in a macro.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The transactions and connections of one version of sqlx.
macro_rules! with_sqlx {
    ($version:ident, $driver:ident) => {
        mod $version {
            use async_trait::async_trait;
            use $driver::{Error, PgConnection, Postgres, Transaction, query_scalar};

            use super::kept;
            use crate::store::postgres::errors;
            use crate::store::postgres::transaction::{
                Attempt, Completion, InTransaction, sealed, unreadable,
            };
            use crate::words::error::StoreError;

            impl sealed::Sealed for PgConnection {}
            impl sealed::Sealed for Transaction<'_, Postgres> {}

            #[async_trait]
            impl InTransaction for PgConnection {
                async fn lock(&mut self, statement: &str, attempt: &Attempt) -> Result<String, StoreError> {
                    query_scalar(kept(statement))
                        .bind(&attempt.id)
                        .bind(&attempt.token)
                        .bind(attempt.fence)
                        .fetch_one(self)
                        .await
                        .map_err(meaning)
                }

                async fn complete(
                    &mut self,
                    statement: &str,
                    completion: &Completion,
                ) -> Result<String, StoreError> {
                    query_scalar(kept(statement))
                        .bind(&completion.attempt.id)
                        .bind(&completion.attempt.token)
                        .bind(completion.attempt.fence)
                        .bind(completion.status)
                        .bind(&completion.subtype)
                        .bind(&completion.headers)
                        .bind(&completion.body)
                        .fetch_one(self)
                        .await
                        .map_err(meaning)
                }
            }

            #[async_trait]
            impl InTransaction for Transaction<'_, Postgres> {
                async fn lock(&mut self, statement: &str, attempt: &Attempt) -> Result<String, StoreError> {
                    InTransaction::lock(&mut **self, statement, attempt).await
                }

                async fn complete(
                    &mut self,
                    statement: &str,
                    completion: &Completion,
                ) -> Result<String, StoreError> {
                    InTransaction::complete(&mut **self, statement, completion).await
                }
            }

            /// The meaning of an error of sqlx, by its code, as with the other driver.
            fn meaning(error: Error) -> StoreError {
                if let Error::ColumnDecode { .. } = error {
                    return unreadable(error);
                }
                let answered = error.as_database_error();
                let code = answered.and_then(|answered| answered.code());
                if code.is_some_and(|code| !errors::is_transient(&code)) {
                    return StoreError::refused("Postgres refused the statement").with_source(error);
                }
                let what =
                    answered.map_or_else(|| error.to_string(), |answered| answered.message().to_owned());
                StoreError::unavailable(format!("Postgres: {what}")).with_source(error)
            }
        }
    };
}

#[cfg(feature = "sqlx")]
with_sqlx!(version_0_9, sqlx);
#[cfg(feature = "sqlx08")]
with_sqlx!(version_0_8, sqlx08);

/// The statement with a static lifetime, which sqlx requires of a text that is not part of the
/// program. There are two for each schema.
fn kept(statement: &str) -> &'static str {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut kept = KEPT.lock();
    let kept = kept.get_or_insert_default();
    match kept.get(statement) {
        Some(statement) => statement,
        None => {
            let statement: &'static str = statement.to_owned().leak();
            kept.insert(statement);
            statement
        }
    }
}
