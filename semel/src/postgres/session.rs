//! A connection that is ready for work.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, Row, Socket};

use super::errors;
use super::migrate;
use super::options::PostgresOptions;
use super::values::Moment;
use crate::error::StoreError;

/// The oldest server whose scans by row address (prune) and compression settings the statements can use.
const MIN_SERVER_VERSION: i32 = 140_000;

/// A connection, with what has to be known about it.
pub(super) struct Session {
    pub(super) client: Client,
    peer: Peer,
    warned: Arc<AtomicBool>,
    driver: AbortHandle,
}

/// The process at the other end of a connection. Process numbers come back; together with the start they do not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    process: i32,
    started: Moment,
}

/// Settings of the connections that commit batches.
///
/// The statements look up a handful of ids in an index of any size. A plan made once for an empty table must serve ten million
/// rows, so the other ways are closed. What is left of a cut connection must not hold its locks for long.
const COMMITTER_SETTINGS: &str = "
    set search_path = pg_catalog;
    set default_transaction_isolation = 'read committed';
    set client_min_messages = warning;
    set plan_cache_mode = force_generic_plan;
    set enable_seqscan = off;
    set enable_bitmapscan = off;
    set enable_hashjoin = off;
    set enable_mergejoin = off;
    set jit = off;
    set lock_timeout = '1s';
    set statement_timeout = '30s';
    set idle_in_transaction_session_timeout = '10s'";

/// Settings of the connections for everything else: plans are made for what is asked.
const OPERATOR_SETTINGS: &str = "
    set search_path = pg_catalog;
    set default_transaction_isolation = 'read committed';
    set plan_cache_mode = force_custom_plan;
    set jit = off";

impl Session {
    /// A connection for the committer: the schema is there and fits.
    pub(super) async fn for_batches(options: &PostgresOptions) -> Result<Self, StoreError> {
        let session = Self::open(options, COMMITTER_SETTINGS).await?;
        within(options.timeout, migrate::check(&session.client, &options.schema)).await?;
        Ok(session)
    }

    /// A connection for scans, sweeps and migrations.
    pub(super) async fn for_operators(options: &PostgresOptions) -> Result<Self, StoreError> {
        Self::open(options, OPERATOR_SETTINGS).await
    }

    async fn open(options: &PostgresOptions, settings: &str) -> Result<Self, StoreError> {
        within(options.timeout, async {
            let connected = options.config.connect(options.tls.clone()).await;
            let (client, connection) = connected.map_err(|e| unreachable(&e).with_source(e))?;
            let warned = Arc::new(AtomicBool::new(false));
            let driver = tokio::spawn(drive(connection, Arc::clone(&warned))).abort_handle();
            let question = "
                select pid, backend_start, current_setting('server_version_num')::integer, current_setting('synchronous_commit')
                from pg_stat_activity
                where pid = pg_backend_pid()";
            let row = client.query_one(question, &[]).await.map_err(errors::of_question)?;
            let version: i32 = row.get(2);
            if version < MIN_SERVER_VERSION {
                return Err(StoreError::refused(format!(
                    "Postgres {} is too old; version 14 is the oldest that works",
                    version / 10_000
                )));
            }
            client.batch_execute(settings).await.map_err(errors::of_question)?;
            if row.get::<_, &str>(3) == "off" {
                // An outcome that was answered must not be lost in a crash, whatever the rest of the database is content with.
                client.batch_execute("set synchronous_commit = on").await.map_err(errors::of_question)?;
            }
            let peer = Peer { process: row.get(0), started: row.get(1) };
            Ok(Self { client, peer, warned, driver })
        })
        .await
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the server has warned since this was last asked that it did not wait for a standby.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }

    /// Gives the connection up at once, without a farewell.
    pub(super) fn abort(self) {
        self.driver.abort();
    }

    /// Waits until the process at the other end of an earlier connection is gone, and ends it if need be. After that,
    /// nothing it was sent can be applied any more.
    pub(super) async fn lay_to_rest(&self, peer: Peer, patience: Duration) -> Result<(), StoreError> {
        let question = "
            select pg_terminate_backend(pid)
            from pg_stat_activity
            where pid = $1 and backend_start = $2";
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let rows: Vec<Row> = self
                .client
                .query(question, &[&peer.process, &peer.started])
                .await
                .map_err(errors::of_question)?;
            if rows.is_empty() {
                return Ok(());
            }
            if began.elapsed() >= patience {
                return Err(StoreError::unavailable(format!(
                    "the server process {} of a lost connection does not end",
                    peer.process
                )));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}

/// Moves the messages of a connection, and takes note of warnings.
async fn drive<T: TlsStream + Unpin>(mut connection: Connection<Socket, T>, warned: Arc<AtomicBool>) {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) if is_about_standby(&notice) => {
                tracing::warn!(message = notice.message(), "Postgres did not wait for its standby");
                warned.store(true, Ordering::Release);
            }
            Ok(AsyncMessage::Notice(notice)) => {
                tracing::debug!(message = notice.message(), "notice from Postgres")
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to Postgres ended");
                return;
            }
        }
    }
}

/// A commit whose wait for a standby was cut short is answered as a success, after this warning.
fn is_about_standby(notice: &DbError) -> bool {
    let codes = [SqlState::WARNING, SqlState::ADMIN_SHUTDOWN];
    notice.parsed_severity() == Some(Severity::Warning) && codes.contains(notice.code())
}

/// Why there is no connection: refused for good if the server said so, else unavailable.
fn unreachable(error: &tokio_postgres::Error) -> StoreError {
    let class = error.code().and_then(|code| code.code().get(..2)).unwrap_or_default();
    let said = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    // Wrong password, no such database.
    match class {
        "28" | "3D" => StoreError::refused(format!("Postgres lets nobody in: {said}")),
        _ => StoreError::unavailable(format!("Postgres cannot be reached: {said}")),
    }
}

/// The answer, if it comes in time.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, answer)
        .await
        .unwrap_or_else(|_| Err(StoreError::unavailable(format!("Postgres did not answer within {limit:?}"))))
}
