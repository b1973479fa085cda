//! The user's own transaction: it locks the record of an attempt, and records the outcome.

mod with_tokio_postgres;
#[cfg(feature = "sqlx")]
mod with_sqlx;

use async_trait::async_trait;

use super::PostgresStore;
use super::batching::statements::{signed, status};
use crate::protocol::answer::Ack;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

/// A transaction in which an outcome can be recorded: of tokio-postgres or, with the feature `sqlx`, of sqlx.
#[async_trait]
pub trait InTransaction: sealed::Sealed + Send {
    /// Runs the statement about an attempt, and returns the one text it answers.
    #[doc(hidden)]
    async fn lock(&mut self, statement: &str, attempt: &Attempt) -> Result<String, StoreError>;

    /// The same with the outcome.
    #[doc(hidden)]
    async fn complete(&mut self, statement: &str, completion: &Completion) -> Result<String, StoreError>;
}

/// Which attempt it is, as columns.
#[doc(hidden)]
pub struct Attempt {
    id: Vec<u8>,
    token: Vec<u8>,
    fence: i64,
}

impl Attempt {
    fn of(lease: &Lease) -> Self {
        Self {
            id: Id::of(lease.key()).as_bytes().to_vec(),
            token: lease.token().as_bytes().to_vec(),
            fence: signed(lease.fence().get()),
        }
    }
}

/// What is recorded, as columns.
#[doc(hidden)]
pub struct Completion {
    attempt: Attempt,
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
    /// The commit waits for the disk, also in a session whose `synchronous_commit` is `off`: until the end of the
    /// transaction it is raised to `on`. A repeatable read or serializable transaction begins with
    /// [`lock_in`](Self::lock_in).
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
            attempt: Attempt::of(lease),
            status: status(outcome).into(),
            subtype: outcome.subtype().map(str::to_owned),
            headers: outcome.stored_headers().to_vec(),
            body: outcome.body().map(|body| body.to_vec()),
        };
        let statement = self.schema().script("select semel.complete_record($1, $2, $3, $4, $5, $6, $7)");
        ack(&transaction.complete(&statement, &completion).await?)
    }

    /// Locks the record of the attempt until the end of a transaction of the caller's, which
    /// [`complete_in`](Self::complete_in) completes later.
    ///
    /// It is for repeatable read and serializable, and has to be the first statement of the transaction. At these
    /// levels Postgres refuses to write a row that was changed since (SQLSTATE 40001), and renewals change the
    /// record three times a lease: without the lock, a transaction that takes longer can never be completed, however
    /// often it is tried. Renewals leave a locked record alone, and so does everything else that would change it.
    /// The lease may run out meanwhile; no claim takes the key over, and all are answered that it is running. If
    /// the transaction is rolled back after that, any claim may take over that is allowed to.
    ///
    /// [`Ack::Applied`] says that it is locked. After any other answer there is nothing to lock, as the attempt has lost
    /// its lease or has an outcome: roll back, and leave the answer to the engine. [`Ack::applied`] does so by `?`.
    ///
    /// ```no_run
    /// # async fn book(store: &semel::PostgresStore, client: &mut tokio_postgres::Client, lease: semel::Lease)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio_postgres::IsolationLevel;
    ///
    /// let mut tx = client.build_transaction().isolation_level(IsolationLevel::Serializable).start().await?;
    /// store.lock_in(&mut tx, &lease).await?.applied()?;
    /// tx.execute("insert into charges (amount) select sum(amount) from items", &[]).await?;
    /// let outcome = semel::Outcome::json(&"charged")?;
    /// store.complete_in(&mut tx, &lease, &outcome).await?.applied()?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the database said; the transaction is then to be rolled back. A transient one is worth another transaction:
    /// 40001 says that a renewal was committed at this very moment.
    pub async fn lock_in(
        &self,
        transaction: &mut impl InTransaction,
        lease: &Lease,
    ) -> Result<Ack, StoreError> {
        let statement = self.schema().script("select semel.lock_record($1, $2, $3)");
        ack(&transaction.lock(&statement, &Attempt::of(lease)).await?)
    }
}

/// What the functions of the schema answer.
fn ack(word: &str) -> Result<Ack, StoreError> {
    match word {
        "applied" => Ok(Ack::Applied),
        "repeated" => Ok(Ack::Repeated),
        "finished" => Ok(Ack::Finished),
        "superseded" => Ok(Ack::Superseded),
        "missing" => Ok(Ack::Missing),
        other => Err(StoreError::corrupt(format!(
            "a function of the schema answered {other:?}, which is not known here"
        ))),
    }
}

/// An answer that is not a text: the function is not the one that the migrations created.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt("the answer of a function of the schema is not a text").with_source(error)
}
