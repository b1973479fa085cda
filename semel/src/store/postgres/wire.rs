//! The driver of a connection to Postgres.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::time::Sleep;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::PostgresOptions;
use super::session::within;
use crate::runtime::waking::Attention;
use crate::words::error::StoreError;

/// The driver of a connection, which moves its messages and records warnings.
pub(super) struct Wire {
    /// `None` once the connection is over: a caller that still waits for an answer learns of the
    /// end by that, and only by that.
    pub(super) connection: Option<Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>>,
    warned: bool,
    pub(super) attention: Attention,
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

    pub(super) async fn run(&mut self) {
        poll_fn(|context| {
            self.poll_messages(context);
            if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    }

    pub(super) fn poll_messages(&mut self, context: &mut Context<'_>) {
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

/// A new connection, before anything is sent over it.
pub(super) async fn connect(options: &PostgresOptions) -> Result<(Client, Wire), StoreError> {
    let connected = async {
        let connected = options.next().await?.connect(options.tls.clone()).await;
        connected.map_err(|e| unreachable(&e, options.asks_for_passwords()).with_source(e))
    };
    let (client, connection) = within(options.timeout, connected).await?;
    Ok((client, Wire { connection: Some(connection), warned: false, attention: Attention::default() }))
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
