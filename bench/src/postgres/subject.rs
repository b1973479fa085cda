//! The measured sides: semel, one statement per call, and cratestack.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use cratestack_core::{IdempotencyStore, ReservationOutcome};
use cratestack_sqlx::SqlxIdempotencyStore;
use cratestack_sqlx::sqlx::pool::PoolOptions;
use semel::PostgresStore;
use semel::store::{PostgresOptions, Token};
use tokio_postgres::types::ToSql;

use super::pool::{POOL, Pool};
use super::shapes::{Shape, Shaped};
use crate::caller::{BODY_BYTES, Caller};

/// A side that makes operations idempotent.
#[async_trait]
pub(crate) trait Subject: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Claims a new key and records its outcome.
    async fn first(&self, key: &str) -> Result<()>;

    /// Claims a key that has an outcome, and reads the outcome.
    async fn replay(&self, key: &str) -> Result<()>;
}

/// The names of the sides.
pub(crate) const SEMEL: &str = "semel";
pub(super) const CRATESTACK: &str = "cratestack-sqlx";
pub(super) const PER_CALL: &str = "per call";

/// Connects the side of this name, whose tables exist. Sides that hold a connection for each call
/// have one for each caller, up to the size of a pool.
pub(crate) async fn connect(
    url: &str,
    side: &str,
    schema: &str,
    callers: usize,
    connections: Connections,
) -> Result<Arc<dyn Subject>> {
    let size = callers.min(POOL);
    let shape = Shape::ALL.into_iter().find(|shape| shape.name() == side);
    Ok(match (side, shape) {
        (SEMEL, _) => Arc::new(Semel::connect(url, connections, schema).await?),
        (CRATESTACK, _) => Arc::new(Cratestack::connect(url, u32::try_from(size)?).await?),
        (PER_CALL, _) => Arc::new(PerCall::connect(url, size, PER_CALL_SCHEMA).await?),
        (_, Some(shape)) => Arc::new(Shaped::connect(url, shape, size).await?),
        (_, None) => bail!("there is no side {side:?}"),
    })
}

/// The connections of semel to Postgres.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Connections {
    /// Connections of semel that share a load
    #[arg(long, default_value_t = PostgresOptions::DEFAULT_CONNECTIONS)]
    pub(crate) connections: usize,

    /// Connections of semel that are opened on demand
    #[arg(long, default_value_t = PostgresOptions::DEFAULT_ADDITIONAL_CONNECTIONS)]
    pub(crate) additional_connections: usize,
}

impl Connections {
    pub(crate) const DEFAULT: Self = Self {
        connections: PostgresOptions::DEFAULT_CONNECTIONS,
        additional_connections: PostgresOptions::DEFAULT_ADDITIONAL_CONNECTIONS,
    };
}

/// semel, with a schema of its own.
pub(crate) type Semel = Caller<PostgresStore>;

impl Semel {
    pub(crate) async fn connect(url: &str, connections: Connections, schema: &str) -> Result<Self> {
        let Connections { connections, additional_connections } = connections;
        let options = PostgresOptions::new(url)?
            .with_schema(schema)
            .with_connections(connections)
            .with_additional_connections(additional_connections);
        let store = options.connect().await?;
        store.migrate().await?;
        Self::new(store)
    }
}

#[async_trait]
impl Subject for Semel {
    fn name(&self) -> &'static str {
        SEMEL
    }

    async fn first(&self, key: &str) -> Result<()> {
        Caller::first(self, key).await
    }

    async fn replay(&self, key: &str) -> Result<()> {
        Caller::replay(self, key).await
    }
}

/// The same table, with one statement for each call over a pool: the fewest statements that are
/// possible without group commit.
pub(super) struct PerCall(Pool);

const PER_CALL_SCHEMA: &str = "per_call";
const CLAIM: usize = 0;
const COMPLETE: usize = 1;

impl PerCall {
    pub(super) async fn connect(url: &str, size: usize, schema: &str) -> Result<Self> {
        let _migrated = Semel::connect(url, Connections::DEFAULT, schema).await?;
        let statements = [include_str!("per_call_claim.sql"), include_str!("per_call_complete.sql")];
        Ok(Self(Pool::connect(url, size, schema, &statements).await?))
    }

    async fn claim(&self, key: &str, token: &[u8]) -> Result<Option<Vec<u8>>> {
        let taken = self.0.take().await?;
        let row = taken.client.query_one(&taken.statements[CLAIM], &[&key, &token]).await?;
        Ok(row.get(0))
    }
}

#[async_trait]
impl Subject for PerCall {
    fn name(&self) -> &'static str {
        PER_CALL
    }

    async fn first(&self, key: &str) -> Result<()> {
        let token = Token::random();
        ensure!(self.claim(key, token.as_bytes()).await?.is_none(), "{key} was not granted");
        let taken = self.0.take().await?;
        let body = [b'x'; BODY_BYTES];
        let values: [&(dyn ToSql + Sync); 3] = [&key, &token.as_bytes().as_slice(), &body.as_slice()];
        let written = taken.client.execute(&taken.statements[COMPLETE], &values).await?;
        ensure!(written == 1, "{key} was not completed");
        Ok(())
    }

    async fn replay(&self, key: &str) -> Result<()> {
        let body = self.claim(key, Token::random().as_bytes()).await?;
        ensure!(body.is_some_and(|body| body.len() == BODY_BYTES), "{key} has another body");
        Ok(())
    }
}

/// The outside reference.
pub(super) struct Cratestack(SqlxIdempotencyStore);

impl Cratestack {
    pub(super) async fn connect(url: &str, size: u32) -> Result<Self> {
        let pool = PoolOptions::new().max_connections(size).min_connections(size).connect(url).await?;
        let store = SqlxIdempotencyStore::new(pool);
        store.ensure_schema().await.map_err(|e| anyhow::anyhow!("{e:?}"))?;
        Ok(Self(store))
    }

    async fn reserve(&self, key: &str) -> Result<ReservationOutcome> {
        let expires_at = SystemTime::now() + Duration::from_secs(24 * 3600);
        let reserved = self.0.reserve_or_fetch("bench", key, [7; 32], expires_at).await;
        reserved.map_err(|e| anyhow::anyhow!("{e:?}")).context("could not reserve")
    }
}

#[async_trait]
impl Subject for Cratestack {
    fn name(&self) -> &'static str {
        CRATESTACK
    }

    async fn first(&self, key: &str) -> Result<()> {
        let ReservationOutcome::Reserved { token } = self.reserve(key).await? else {
            bail!("{key} was not granted")
        };
        let done = self.0.complete("bench", key, token, 200, b"", &[b'x'; BODY_BYTES]).await;
        done.map_err(|e| anyhow::anyhow!("{e:?}"))
    }

    async fn replay(&self, key: &str) -> Result<()> {
        let ReservationOutcome::Replay(record) = self.reserve(key).await? else { bail!("{key} is not done") };
        ensure!(record.response_body.len() == BODY_BYTES, "{key} has another body");
        Ok(())
    }
}
