//! Other stores' orders of statements, call by call, over tables like theirs, rewritten for this
//! benchmark.

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::pool::Pool;
use super::subject::Subject;
use crate::caller::BODY_BYTES;
use crate::load::uuid_v4;
use crate::server::Server;

/// The schema of their tables.
const SCHEMA: &str = "shapes";

/// An order of statements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An insert; if that violates the primary key, a select. Apache Polaris did so.
    InsertOrError,
    /// An insert that does nothing if the key exists; then a select. This is the most common one.
    InsertOrNothing,
    /// An insert that takes over an expired record, and locks a live one; then a select. anyonce
    /// and cratestack do so.
    Upsert,
    /// A transaction: an advisory lock of the key, a select, and an insert if the key was missing.
    AdvisoryLock,
}

impl Shape {
    pub(super) const ALL: [Self; 4] =
        [Self::InsertOrError, Self::InsertOrNothing, Self::Upsert, Self::AdvisoryLock];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InsertOrError => "insert or error",
            Self::InsertOrNothing => "insert or nothing",
            Self::Upsert => "upsert if expired",
            Self::AdvisoryLock => "advisory lock",
        }
    }

    pub(super) fn table(self) -> String {
        format!("{SCHEMA}.{}", self.name().replace(' ', "_"))
    }

    /// The clause that follows the values of the insert.
    fn on_conflict(self) -> &'static str {
        match self {
            Self::InsertOrError | Self::AdvisoryLock => "",
            Self::InsertOrNothing => "on conflict (realm, key) do nothing",
            Self::Upsert => {
                "on conflict (realm, key) do update
                set owner = excluded.owner, status = null, headers = null, body = null, finished_at = null,
                    created_at = excluded.created_at, expires_at = excluded.expires_at
                where existing.expires_at <= now()"
            }
        }
    }
}

/// A store with this order of statements.
pub(super) struct Shaped {
    shape: Shape,
    pool: Pool,
}

const INSERT: usize = 0;
const LOOK: usize = 1;
const COMPLETE: usize = 2;
const LOCK: usize = 3;

impl Shaped {
    /// Makes the table.
    pub(super) async fn prepare(server: &Server, shape: Shape) -> Result<()> {
        let table = shape.table();
        server.run(&format!("create schema if not exists {SCHEMA}")).await?;
        server
            .run(&format!(
                "create table if not exists {table} (
                    realm text not null, key text not null, operation text not null, resource text not null,
                    owner text not null, status integer, headers text, body bytea,
                    created_at timestamptz not null, updated_at timestamptz not null, heartbeat_at timestamptz not null,
                    finished_at timestamptz, expires_at timestamptz not null,
                    primary key (realm, key)
                );
                create index if not exists {name}_expires_at on {table} (expires_at)",
                name = shape.name().replace(' ', "_")
            ))
            .await
    }

    pub(super) async fn connect(url: &str, shape: Shape, size: usize) -> Result<Self> {
        let table = shape.table();
        let insert = format!(
            "insert into {table} as existing (
                realm, key, operation, resource, owner, created_at, updated_at, heartbeat_at, expires_at
            )
            values ('bench', $1, 'POST /charges', '', $2, now(), now(), now(), now() + interval '1 day')
            {}",
            shape.on_conflict()
        );
        let look = format!(
            "select operation, resource, owner, status, headers, body, expires_at from {table}
            where realm = 'bench' and key = $1"
        );
        let complete = format!(
            "update {table}
            set status = 200, headers = '', body = $3, finished_at = now(), updated_at = now()
            where realm = 'bench' and key = $1 and owner = $2 and status is null"
        );
        let lock = "select pg_advisory_xact_lock(hashtextextended($1, 0))";
        let statements = [insert.as_str(), &look, &complete, lock];
        Ok(Self { shape, pool: Pool::connect(url, size, SCHEMA, &statements).await? })
    }

    /// Claims a key; if it is taken, returns the recorded body.
    async fn claim(&self, key: &str, owner: &str) -> Result<Option<Vec<u8>>> {
        let taken = self.pool.take().await?;
        let (client, statements) = (&taken.client, &taken.statements);
        let found = match self.shape {
            Shape::InsertOrError => match client.execute(&statements[INSERT], &[&key, &owner]).await {
                Ok(_) => return Ok(None),
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                    client.query_one(&statements[LOOK], &[&key]).await?
                }
                Err(error) => bail!(error),
            },
            Shape::InsertOrNothing | Shape::Upsert => {
                if client.execute(&statements[INSERT], &[&key, &owner]).await? == 1 {
                    return Ok(None);
                }
                client.query_one(&statements[LOOK], &[&key]).await?
            }
            Shape::AdvisoryLock => {
                client.batch_execute("begin").await?;
                client.execute(&statements[LOCK], &[&key]).await?;
                let found = client.query_opt(&statements[LOOK], &[&key]).await?;
                if found.is_none() {
                    client.execute(&statements[INSERT], &[&key, &owner]).await?;
                }
                client.batch_execute("commit").await?;
                let Some(found) = found else { return Ok(None) };
                found
            }
        };
        body(&found).map(Some)
    }
}

fn body(row: &Row) -> Result<Vec<u8>> {
    row.get::<_, Option<Vec<u8>>>("body").context("the key is not done")
}

#[async_trait]
impl Subject for Shaped {
    fn name(&self) -> &'static str {
        self.shape.name()
    }

    async fn first(&self, key: &str) -> Result<()> {
        let owner = uuid_v4();
        ensure!(self.claim(key, &owner).await?.is_none(), "{key} was not granted");
        let taken = self.pool.take().await?;
        let body = [b'x'; BODY_BYTES];
        let written =
            taken.client.execute(&taken.statements[COMPLETE], &[&key, &owner, &body.as_slice()]).await?;
        ensure!(written == 1, "{key} was not completed");
        Ok(())
    }

    async fn replay(&self, key: &str) -> Result<()> {
        let body = self.claim(key, "somebody else").await?;
        ensure!(body.is_some_and(|body| body.len() == BODY_BYTES), "{key} has another body");
        Ok(())
    }
}
