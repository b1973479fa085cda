//! Completion in the user's own transaction: it locks the record of an attempt, and records the
//! outcome.
//!
//! The SQL function `complete_record` says what a completion comes to that was not applied. It
//! repeats `decide::unapplied`, as the one exception: services in other languages call it, too.
//!
//! - `with_tokio_postgres`: the transactions of tokio-postgres.
//! - `with_sqlx`: the transactions and connections of sqlx.

mod with_tokio_postgres;
#[cfg(any(feature = "sqlx", feature = "sqlx08"))]
mod with_sqlx;

use async_trait::async_trait;

use super::PostgresStore;
use super::batching::statements::{signed, status};
use super::schema::Schema;
use crate::error::Error;
use crate::protocol::answer::Ack;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

/// A transaction in which an outcome can be recorded: one of tokio-postgres or, with the features
/// `sqlx` and `sqlx08`, one of sqlx 0.9 and 0.8.
#[async_trait]
pub trait InTransaction: sealed::Sealed + Send {
    /// Runs the statement that locks an attempt, and returns the text that it answers.
    #[doc(hidden)]
    async fn lock(&mut self, statement: &str, attempt: &Attempt) -> Result<String, StoreError>;

    /// Runs the statement that completes an attempt, and returns the text that it answers.
    #[doc(hidden)]
    async fn complete(&mut self, statement: &str, completion: &Completion) -> Result<String, StoreError>;
}

/// The identity of an attempt, as columns.
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

/// The outcome of an attempt, as columns.
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
}

impl PostgresStore {
    /// Records the outcome in a transaction of the caller, together with the effect: both are
    /// committed, or neither.
    ///
    /// The transaction must be one of the same database. It waits only for a renewal of the same
    /// lease. If it is rolled back, the key is still running, and its owner may try again. If its
    /// commit was not answered, but was made, the next try gets [`Ack::Repeated`]: the effect is
    /// there already. For [`Policy::transactional`](crate::Policy::transactional).
    ///
    /// The retention begins at the moment of this call, not at the commit.
    ///
    /// The commit waits for the disk, also in a session whose `synchronous_commit` is `off`: until
    /// the end of the transaction it is raised to `on`. A repeatable read or serializable
    /// transaction begins with [`lock_in`](Self::lock_in).
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
    /// The error of the database, after which the transaction has to be rolled back. A lost lease
    /// is an answer, not an error: see [`Ack::applied`].
    pub async fn complete_in(
        &self,
        transaction: &mut impl InTransaction,
        lease: &Lease,
        outcome: &Outcome,
    ) -> Result<Ack, StoreError> {
        complete(self.schema(), transaction, lease, outcome).await
    }

    /// Locks the record of the attempt until the end of a transaction of the caller, which
    /// [`complete_in`](Self::complete_in) completes later.
    ///
    /// The lock is for the levels repeatable read and serializable, and has to be the first
    /// statement of the transaction. At these levels Postgres refuses to write a row that was
    /// changed since (SQLSTATE 40001), and renewals change the record three times a lease: without
    /// the lock, a transaction that takes longer can never be completed, however often it is tried.
    /// Renewals skip a locked record, and so does everything else that would change it. The lease
    /// may run out in that time; no claim takes the key over, and all claims are answered
    /// *running*. If the transaction is rolled back after that, any claim that is allowed to may
    /// take over.
    ///
    /// [`Ack::Applied`] means that the record is locked. After any other answer there is nothing to
    /// lock, because the attempt has lost its lease or has an outcome: roll back, and leave the
    /// answer to the engine. [`Ack::applied`] with `?` does so.
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
    /// The error of the database, after which the transaction has to be rolled back. After a
    /// transient error another transaction may succeed: 40001 means that a renewal was committed at
    /// that moment.
    pub async fn lock_in(
        &self,
        transaction: &mut impl InTransaction,
        lease: &Lease,
    ) -> Result<Ack, StoreError> {
        let statement = self.schema().script("select semel.lock_record($1, $2, $3)");
        ack(&transaction.lock(&statement, &Attempt::of(lease)).await?)
    }
}

impl Lease {
    /// Records the outcome of this attempt in a transaction of the caller, together with the
    /// effect: both are committed, or neither. The outcome may be an
    /// [`Outcome`](crate::Outcome) or an HTTP response.
    ///
    /// It is [`PostgresStore::complete_in`], and leaves a lost lease as an error, so that `?` ends
    /// a transaction that must not be committed.
    ///
    /// ```no_run
    /// # async fn charge(client: &mut tokio_postgres::Client, lease: semel::Lease) -> Result<semel::Outcome, semel::Failure> {
    /// let mut tx = client.transaction().await?;
    /// tx.execute("insert into charges (amount) values ($1)", &[&1_000]).await?;
    /// let outcome = semel::Outcome::json_with_status(201, &"charged")?;
    /// lease.complete_in(&mut tx, &outcome).await?;
    /// tx.commit().await?;
    /// # Ok(outcome)
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the database, or of a response that is no outcome.
    /// [`ErrorKind::LeaseLost`](crate::error::ErrorKind::LeaseLost) if another attempt has taken
    /// over or the outcome is recorded already; refused if the lease is not that of a Postgres
    /// store. After any of them the transaction has to be rolled back.
    pub async fn complete_in(
        &self,
        transaction: &mut impl InTransaction,
        outcome: impl TryInto<Outcome, Error: Into<Error>>,
    ) -> Result<(), Error> {
        let outcome = outcome.try_into().map_err(Into::into)?;
        let Some(transactions) = self.transactions() else {
            return Err(StoreError::refused(
                "the lease cannot be completed in a transaction: it was not claimed in a Postgres store",
            )
            .into());
        };
        let schema = Schema::new(transactions.schema());
        schema.check()?;
        Ok(complete(&schema, transaction, self, &outcome).await?.applied()?)
    }
}

async fn complete(
    schema: &Schema,
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
    let statement = schema.script("select semel.complete_record($1, $2, $3, $4, $5, $6, $7)");
    ack(&transaction.complete(&statement, &completion).await?)
}

/// The acknowledgement in the answer of a function of the schema.
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

/// The error for an answer that is not a text: the function is not the one that the migrations
/// created.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt("the answer of a function of the schema is not a text").with_source(error)
}
