//! Completion in a transaction of the user's own.

use async_trait::async_trait;

use super::PostgresStore;
use super::errors;
use super::statements::{signed, status};
use crate::answer::Ack;
use crate::error::StoreError;
use crate::id::Id;
use crate::lease::Lease;
use crate::outcome::Outcome;

/// A transaction in which an outcome can be recorded: of tokio-postgres or, with the feature `sqlx`, of sqlx.
#[async_trait]
pub trait InTransaction: sealed::Sealed + Send {
    /// Runs the statement, and returns the one text it answers.
    #[doc(hidden)]
    async fn complete(&mut self, statement: &str, completion: &Completion) -> Result<String, StoreError>;
}

/// What is recorded, as columns.
#[doc(hidden)]
pub struct Completion {
    id: Vec<u8>,
    token: Vec<u8>,
    fence: i64,
    status: i32,
    subtype: Option<String>,
    headers: Vec<u8>,
    body: Option<Vec<u8>>,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for tokio_postgres::Transaction<'_> {}
    #[cfg(feature = "sqlx")]
    impl Sealed for sqlx::PgConnection {}
    #[cfg(feature = "sqlx")]
    impl Sealed for sqlx::Transaction<'_, sqlx::Postgres> {}
}

impl PostgresStore {
    /// Records the outcome in a transaction of the caller's, together with the effect: both are committed, or
    /// neither.
    ///
    /// The transaction must be one of the same database. It waits for nobody but a renewal of the same lease. If
    /// it is rolled back, the key is still running, and its owner may try again. If its commit was not answered,
    /// whoever tries again is told [`Ack::Repeated`] should it have been made: the effect is there already. For
    /// [`Policy::transactional`](crate::Policy::transactional).
    ///
    /// ```no_run
    /// # async fn book(store: &semel::PostgresStore, client: &mut tokio_postgres::Client, lease: semel::Lease)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = client.transaction().await?;
    /// tx.execute("insert into charges (amount) values ($1)", &[&1_000]).await?;
    /// let outcome = semel::Outcome::json(&"charged")?;
    /// store.complete_in(&mut tx, &lease, &outcome).await?.applied()?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the database said; the transaction is then to be rolled back. A lost lease is an answer, not an
    /// error: see [`Ack::applied`].
    pub async fn complete_in(
        &self,
        transaction: &mut impl InTransaction,
        lease: &Lease,
        outcome: &Outcome,
    ) -> Result<Ack, StoreError> {
        let completion = Completion {
            id: Id::of(lease.key()).as_bytes().to_vec(),
            token: lease.token().as_bytes().to_vec(),
            fence: signed(lease.fence().get()),
            status: status(outcome).into(),
            subtype: outcome.subtype().map(str::to_owned),
            headers: outcome.stored_headers().to_vec(),
            body: outcome.body().map(|body| body.to_vec()),
        };
        let statement = self.schema().script("select semel.complete_record($1, $2, $3, $4, $5, $6, $7)");
        match transaction.complete(&statement, &completion).await?.as_str() {
            "applied" => Ok(Ack::Applied),
            "repeated" => Ok(Ack::Repeated),
            "finished" => Ok(Ack::Finished),
            "superseded" => Ok(Ack::Superseded),
            "missing" => Ok(Ack::Missing),
            other => Err(StoreError::corrupt(format!(
                "a completion was answered {other:?}, which is not known here"
            ))),
        }
    }
}

#[async_trait]
impl InTransaction for tokio_postgres::Transaction<'_> {
    async fn complete(&mut self, statement: &str, of: &Completion) -> Result<String, StoreError> {
        let row = self
            .query_one(
                statement,
                &[&of.id, &of.token, &of.fence, &of.status, &of.subtype, &of.headers, &of.body],
            )
            .await
            .map_err(errors::of_question)?;
        Ok(row.get(0))
    }
}

#[cfg(feature = "sqlx")]
#[async_trait]
impl InTransaction for sqlx::PgConnection {
    async fn complete(&mut self, statement: &str, of: &Completion) -> Result<String, StoreError> {
        sqlx::query_scalar(kept(statement))
            .bind(&of.id)
            .bind(&of.token)
            .bind(of.fence)
            .bind(of.status)
            .bind(&of.subtype)
            .bind(&of.headers)
            .bind(&of.body)
            .fetch_one(self)
            .await
            .map_err(of_sqlx)
    }
}

#[cfg(feature = "sqlx")]
#[async_trait]
impl InTransaction for sqlx::Transaction<'_, sqlx::Postgres> {
    async fn complete(&mut self, statement: &str, of: &Completion) -> Result<String, StoreError> {
        InTransaction::complete(&mut **self, statement, of).await
    }
}

/// The statement for good, which is what sqlx asks for where a text is not part of the program. There is one for
/// each schema.
#[cfg(feature = "sqlx")]
fn kept(statement: &str) -> &'static str {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};

    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
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

/// What an error of sqlx means: by its code, as with the other driver.
#[cfg(feature = "sqlx")]
fn of_sqlx(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|db| db.code());
    let transient = code.is_none_or(|code| errors::is_transient(&code));
    let message = "the outcome could not be recorded in the transaction";
    if transient { StoreError::unavailable(message) } else { StoreError::refused(message) }.with_source(error)
}
