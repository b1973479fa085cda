//! The connections to Postgres.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::errors;
use super::migrate;
use super::options::PostgresOptions;
use super::values::Moment;
use super::wire::{Wire, connect};
use crate::runtime::backoff::Backoff;
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

/// The answer, if it comes in time.
pub(super) fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    time_limit::within(limit, || "Postgres".to_owned(), answer)
}
