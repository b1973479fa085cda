//! The connections to Postgres.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::errors;
use super::migrate;
use super::options::PostgresOptions;
use super::values::Moment;
use crate::runtime::backoff::Backoff;
use crate::runtime::waking::Attention;
use crate::store::shared::time_limit;
use crate::words::error::StoreError;

/// The oldest supported server: the statements use its scans by row address (prune) and its
/// compression settings.
const MIN_SERVER_VERSION: i32 = 140_000;

/// A connection whose messages are moved by a task of its own.
pub(super) struct Session {
    pub(super) client: Client,
    /// The signal that ends the task: it hangs up, even if the server does not answer.
    _in_use: oneshot::Sender<()>,
}

/// The factor by which a long answer may take longer than an ordinary one: a page of a listing, a
/// count, a sweep over some pages, the commit of a migration.
pub(super) const LONG: u32 = 30;

/// The time in which a server may finish closing an unused connection.
const LEAVE: Duration = Duration::from_secs(1);

/// A connection whose messages are moved by the task that waits for an answer: each answer wakes
/// one task less.
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) wire: Wire,
    pub(super) peer: Peer,
    /// The timer of a batch, reset for each. A new timer for each batch would wake the runtime's
    /// timer every time.
    pub(super) alarm: Pin<Box<Sleep>>,
}

/// The driver of a connection, which moves its messages and records warnings.
pub(super) struct Wire {
    /// `None` once the connection is over: a caller that still waits for an answer learns of the
    /// end by that, and only by that.
    connection: Option<Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>>,
    warned: bool,
    attention: Attention,
}

/// The server process at the other end of a connection. Process numbers are reused; a number
/// together with the start time is not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    process: i32,
    started: Moment,
    /// The identifier of the database system, if the role may read it: a number that a server
    /// shares with its standbys only.
    system: Option<i64>,
}

/// The state of the server process of a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// The process is gone: nothing that it was sent can be applied any more.
    Settled,
    /// The new connection leads to another database system, which cannot tell.
    Elsewhere,
}

/// The settings of the connections that commit batches.
///
/// The statements look up a handful of ids in an index of any size. A plan that was made for an
/// empty table must also suit ten million rows, so all other plans are disabled. The remains of a
/// cut connection must not hold their locks for long.
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
    set lock_timeout = '50ms';
    set statement_timeout = '30s';
    set idle_in_transaction_session_timeout = '10s'";

/// The settings of all other connections: each statement is planned for its parameters.
const OPERATOR_SETTINGS: &str = "
    set search_path = pg_catalog;
    set default_transaction_isolation = 'read committed';
    set plan_cache_mode = force_custom_plan;
    set jit = off";

impl Session {
    /// A connection for scans, sweeps and migrations.
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let (client, mut wire) = connect(options).await?;
        let (in_use, over) = oneshot::channel();
        tokio::spawn(async move {
            let over = async {
                let _over = over.await;
                sleep(LEAVE).await;
            };
            tokio::select! {
                () = wire.run() => {}
                () = over => {}
            }
        });
        within(options.timeout, prepare(&client, OPERATOR_SETTINGS)).await?;
        Ok(Self { client, _in_use: in_use })
    }
}

impl Line {
    /// A connection for batches, after checking that the schema exists and fits.
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let (client, mut wire) = connect(options).await?;
        let ready = async {
            let peer = prepare(&client, COMMITTER_SETTINGS).await?;
            migrate::check(&client, &options.schema).await?;
            Ok(peer)
        };
        let peer = wire.carry(within(options.timeout, ready)).await?;
        Ok(Self { client, wire, peer, alarm: Box::pin(sleep(options.timeout)) })
    }

    /// Returns `true` if the other end is still there, as far as that is known without a round
    /// trip.
    pub(super) async fn is_open(&mut self) -> bool {
        let wire = &mut self.wire;
        let attention = wire.attention.clone();
        let look = |context: &mut Context<'_>| {
            wire.poll_messages(context);
            Poll::Ready(wire.connection.is_some())
        };
        attention.poll(look).await
    }

    /// Waits until the server process of an earlier connection is gone, and terminates it if
    /// necessary. After that, nothing that it was sent can be applied any more.
    ///
    /// Only the same server can tell. A standby does not know the processes of its primary; it may
    /// be promoted, or the next connection may lead to the primary again.
    pub(super) async fn lay_to_rest(&mut self, peer: Peer, patience: Duration) -> Result<Rest, StoreError> {
        if let (Some(lost), Some(found)) = (peer.system, self.peer.system)
            && lost != found
        {
            return Ok(Rest::Elsewhere);
        }
        let recovers = async { self.client.query_one("select pg_is_in_recovery()", &[]).await };
        let recovers = self.wire.carry(recovers).await.map_err(errors::of_question)?;
        if recovers.get(0) {
            return Err(StoreError::unavailable(
                "Postgres is a standby, which does not know the fate of a lost connection to its primary",
            ));
        }
        let question = "
            select pg_terminate_backend(pid)
            from pg_stat_activity
            where pid = $1 and backend_start = $2";
        let began = Instant::now();
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
        let mut tries = 0;
        loop {
            let rows = async { self.client.query(question, &[&peer.process, &peer.started]).await };
            let rows = self.wire.carry(rows).await.map_err(errors::of_question)?;
            if rows.is_empty() {
                return Ok(Rest::Settled);
            }
            if began.elapsed() >= patience {
                return Err(StoreError::unavailable(format!(
                    "the server process {} of a lost connection does not end",
                    peer.process
                )));
            }
            sleep(backoff.pause(tries)).await;
            tries += 1;
        }
    }
}

impl Wire {
    /// Moves messages until this future completes.
    pub(super) async fn carry<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let attention = self.attention.clone();
        let look = |context: &mut Context<'_>| {
            // The future first queues its messages, then they are sent; answers that came in are
            // handled right away.
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            self.poll_messages(context);
            work.as_mut().poll(context)
        };
        attention.poll(look).await
    }

    /// Moves messages until this future completes, but not beyond the alarm.
    pub(super) async fn carry_until<T>(
        &mut self,
        alarm: &mut Pin<Box<Sleep>>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let either = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
        });
        self.carry(either).await
    }

    async fn run(&mut self) {
        poll_fn(|context| {
            self.poll_messages(context);
            if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    }

    fn poll_messages(&mut self, context: &mut Context<'_>) {
        while let Some(connection) = &mut self.connection {
            match connection.poll_message(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => self.note(&notice),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a connection to Postgres ended");
                    self.connection = None;
                }
                Poll::Ready(None) => self.connection = None,
            }
        }
    }

    fn note(&mut self, notice: &DbError) {
        if is_about_standby(notice) {
            tracing::warn!(message = notice.message(), "Postgres did not wait for its standby");
            self.warned = true;
        } else {
            tracing::debug!(message = notice.message(), "notice from Postgres");
        }
    }

    /// Returns `true` if the server has warned, since the last call, that it did not wait for a
    /// standby.
    pub(super) fn take_warning(&mut self) -> bool {
        std::mem::take(&mut self.warned)
    }
}

async fn connect(options: &PostgresOptions) -> Result<(Client, Wire), StoreError> {
    let connected = async {
        let connected = options.next().await?.connect(options.tls.clone()).await;
        connected.map_err(|e| unreachable(&e, options.asks_for_passwords()).with_source(e))
    };
    let (client, connection) = within(options.timeout, connected).await?;
    Ok((client, Wire { connection: Some(connection), warned: false, attention: Attention::default() }))
}

/// Prepares a new connection for use, and returns the identity of its server process.
async fn prepare(client: &Client, settings: &str) -> Result<Peer, StoreError> {
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
        // An acknowledged outcome must not be lost in a crash, whatever durability the rest of the
        // database has chosen.
        client.batch_execute("set synchronous_commit = on").await.map_err(errors::of_question)?;
    }
    Ok(Peer { process: row.get(0), started: row.get(1), system: system(client).await? })
}

/// The number of the database system, unless the role may not read it.
async fn system(client: &Client) -> Result<Option<i64>, StoreError> {
    let told = client.query_one("select system_identifier from pg_control_system()", &[]).await;
    match told {
        Ok(row) => Ok(row.get(0)),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(None),
        Err(error) => Err(errors::of_question(error)),
    }
}

/// A commit whose wait for a standby was cut short is reported as a success, after this warning.
fn is_about_standby(notice: &DbError) -> bool {
    let codes = [SqlState::WARNING, SqlState::ADMIN_SHUTDOWN];
    notice.parsed_severity() == Some(Severity::Warning) && codes.contains(notice.code())
}

/// The reason why there is no connection: refused for good if the server said so, otherwise
/// unavailable. Where passwords change, the next one may be right.
fn unreachable(error: &tokio_postgres::Error, passwords_change: bool) -> StoreError {
    let class = error.code().and_then(|code| code.code().get(..2)).unwrap_or_default();
    let said = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    // The password is wrong, or there is no such database.
    match class {
        "28" if passwords_change => {
            StoreError::unavailable(format!("Postgres refused the present password: {said}"))
        }
        "28" | "3D" => StoreError::refused(format!("Postgres refused the connection: {said}")),
        _ => StoreError::unavailable(format!("Postgres cannot be reached: {said}")),
    }
}

/// The answer, if it comes in time.
pub(super) fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    time_limit::within(limit, || "Postgres".to_owned(), answer)
}
