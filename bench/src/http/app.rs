//! The measured app, with and without layers, in a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use cratestack_sqlx::SqlxIdempotencyStore;
use cratestack_sqlx::sqlx::pool::PoolOptions;
use semel::admin::{Prune, Pruning};
use semel::http::{Anonymous, IdempotencyLayer};
use semel::{MemoryStore, Policy, PostgresStore, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// The number of connections with which cratestack-sqlx is fastest behind HTTP.
const POOL: u32 = 32;
/// The size of a small JSON answer.
pub(super) const BODY_BYTES: usize = 200;

/// The app to serve.
#[derive(Clone, clap::Subcommand)]
pub(crate) enum App {
    /// Without a layer
    Plain,
    /// semel over the memory store
    Memory,
    /// semel over a memory store with a short retention, whose number of records soon stops growing
    Forgetful,
    /// semel over Postgres
    Postgres {
        /// Its URL
        url: String,
    },
    /// cratestack-axum over cratestack-sqlx
    Cratestack {
        /// The URL of its Postgres
        url: String,
    },
    /// No app: bytes are copied to another server and back, which is the least work of a proxy
    Relay {
        /// The address of that server
        upstream: SocketAddr,
    },
}

/// Serves until the standard input is closed. The address is the first line of output.
pub(super) async fn serve(app: &App) -> Result<()> {
    let plain = Router::new().route("/charges", post(|_body: Bytes| async { vec![b'x'; BODY_BYTES] }));
    let router = match app {
        App::Relay { upstream } => return relay(*upstream).await,
        App::Plain => plain,
        App::Memory => plain.layer(sharing(MemoryStore::new())),
        App::Forgetful => {
            let (store, second) = (MemoryStore::new(), Duration::from_secs(1));
            let pruning =
                Pruning::default().with_prune(Prune::default().with_limit(u32::MAX)).with_idle(second / 4);
            let policy = Policy::hold().with_lease(second).with_retention(second);
            plain.layer(sharing(store).with_policy(policy).with_pruning(pruning))
        }
        App::Postgres { url } => {
            let store = PostgresStore::connect(url).await?;
            store.migrate().await?;
            plain.layer(sharing(store))
        }
        App::Cratestack { url } => {
            let pool = PoolOptions::new().max_connections(POOL).min_connections(POOL).connect(url).await?;
            let store = SqlxIdempotencyStore::new(pool);
            store.ensure_schema().await.map_err(|e| anyhow::anyhow!("{e:?}"))?;
            let layer = cratestack_axum::idempotency::IdempotencyLayer::new(
                Arc::new(store),
                Duration::from_secs(24 * 3600),
            );
            plain.layer(layer.with_principal_fingerprint(|_| "bench".to_owned()))
        }
    };
    let listener = listen().await?;
    until_closed(axum::serve(listener, router).into_future()).await
}

/// A layer whose callers share their keys, because the load has no credentials.
fn sharing(store: impl Store) -> IdempotencyLayer {
    IdempotencyLayer::new(store).with_anonymous_callers(Anonymous::Share)
}

/// Listens, and prints the address.
async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen")?;
    let mut out = tokio::io::stdout();
    out.write_all(format!("{}\n", listener.local_addr()?).as_bytes()).await?;
    out.flush().await?;
    Ok(listener)
}

async fn until_closed(serving: impl Future<Output = std::io::Result<()>>) -> Result<()> {
    tokio::select! {
        served = serving => served.context("could not serve"),
        _closed = async { tokio::io::stdin().read_u8().await } => Ok(()),
    }
}

/// Gives each connection one of its own to the upstream, and copies bytes without reading them.
async fn relay(upstream: SocketAddr) -> Result<()> {
    let listener = listen().await?;
    until_closed(async {
        loop {
            let (mut client, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut server = TcpStream::connect(upstream).await?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    })
    .await
}
