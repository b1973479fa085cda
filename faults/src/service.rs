//! The service under test: one effect per request, with the layer around it, or without it behind a
//! gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use clap::Args;
#[cfg(semel_faults)]
use semel::fault::reach;
use semel::http::{Anonymous, IdempotencyLayer, Settle};
use semel::store::RedisOptions;
use semel::{Lease, Once, Outcome, Policy, PostgresStore, RedisStore, SqliteStore, Store, Tiered};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;

use crate::checker::Policy as Named;
use crate::clock;
use crate::event::{Effect, Receipt, Step, What};
use crate::hook;
use crate::ledger;
use crate::log::Log;
use crate::transaction::Accounts;
use crate::work::Work;

/// A build without failpoints never ends here.
#[cfg(not(semel_faults))]
fn reach(_point: &str) {}

/// The options of the service.
#[derive(Args)]
pub(crate) struct ServiceArgs {
    /// The address of the service.
    #[arg(long)]
    listen: SocketAddr,
    /// The URL of the store; none behind a gateway.
    #[arg(long)]
    store: Option<String>,
    /// The URL of the hot store in front of it.
    #[arg(long)]
    cache: Option<String>,
    #[arg(long, value_enum)]
    policy: Named,
    #[arg(long)]
    lease_ms: u64,
    /// The retention of outcomes, one day by default.
    #[arg(long)]
    retention_ms: Option<u64>,
    /// Reconciles held keys by the logs of all handlers.
    #[arg(long)]
    reconcile: bool,
    /// The socket of the ledger.
    #[arg(long)]
    ledger: PathBuf,
    /// The folder of the handlers' logs, one for each life of the process.
    #[arg(long)]
    log: PathBuf,
}

#[derive(Clone)]
struct Service {
    ledger: Arc<PathBuf>,
    log: Log,
    /// The table of effects, where effects are rows of the store's own database.
    accounts: Option<Accounts>,
}

pub(crate) async fn serve(args: ServiceArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let mut service = Service {
        ledger: Arc::new(args.ledger),
        log: Log::open(&args.log.join(format!("{}.steps", std::process::id())))?,
        accounts: None,
    };
    let mut router = Router::new().route("/effects", post(handle));
    if let Some(url) = &args.store {
        let once = match url.split(':').next() {
            Some("sqlite") => Once::new(SqliteStore::open(&url["sqlite:".len()..]).await?),
            Some(scheme) if scheme.starts_with("redis") => Once::new(RedisStore::connect(url).await?),
            _ => {
                let store = PostgresStore::connect(url).await?;
                if args.policy == Named::Transactional {
                    service.accounts = Some(Accounts::new(url, store.clone())?);
                }
                Once::new(before(store, args.cache.as_deref()).await?)
            }
        };
        let policy = match args.policy {
            Named::Hold => Policy::hold(),
            Named::Retry => Policy::retry(),
            Named::Transactional => Policy::transactional(),
        };
        let policy = policy.with_lease(Duration::from_millis(args.lease_ms));
        let once = once.with_policy(match args.retention_ms {
            Some(retention) => policy.with_retention(Duration::from_millis(retention)),
            None => policy,
        });
        let once = if args.reconcile { once.with_reconcile(hook::over(&args.log)) } else { once };
        let layer = IdempotencyLayer::over(once).with_required_key(true);
        router = router.layer(layer.with_anonymous_callers(Anonymous::Share));
    }
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("could not listen on {}", args.listen))?;
    axum::serve(listener, router.with_state(service)).await?;
    Ok(())
}

/// The store behind its cache, if it has one. A cache that is down is left out, because it only
/// saves time.
async fn before(store: PostgresStore, cache: Option<&str>) -> Result<Arc<dyn Store>> {
    let Some(url) = cache else { return Ok(Arc::new(store)) };
    match RedisOptions::new(url)?.with_eviction_allowed().connect().await {
        Ok(hot) => Ok(Arc::new(Tiered::new(hot, store))),
        Err(error) => {
            eprintln!("goes without a cache: {error}");
            Ok(Arc::new(store))
        }
    }
}

/// An attempt, described by the layer's lease or by the headers of a gateway.
struct Attempt {
    lease: Option<Lease>,
    fence: u64,
    number: u32,
}

impl Attempt {
    fn of(lease: Option<Lease>, headers: &HeaderMap) -> Result<Self> {
        if let Some(lease) = lease {
            return Ok(Self { fence: lease.fence().get(), number: lease.attempt(), lease: Some(lease) });
        }
        let text = |name: &str| {
            let value = headers.get(name).with_context(|| format!("a request without {name}"))?;
            anyhow::Ok(value.to_str()?.to_owned())
        };
        Ok(Self {
            lease: None,
            fence: text("semel-fence")?.parse()?,
            number: text("semel-attempt")?.parse()?,
        })
    }
}

async fn handle(
    State(service): State<Service>,
    lease: Option<Lease>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match service.run(lease, &headers, &body).await {
        Ok(response) => response,
        Err(error) => {
            eprintln!("a handler failed: {error:#}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl Service {
    async fn run(&self, lease: Option<Lease>, headers: &HeaderMap, body: &[u8]) -> Result<Response> {
        let attempt = Attempt::of(lease, headers)?;
        let work: Work = serde_json::from_slice(body)?;
        let caller = headers.get(AUTHORIZATION).context("a request by nobody")?.to_str()?;
        let receipt = Receipt {
            caller: caller.to_owned(),
            key: work.key,
            intent: work.intent,
            run: format!("{:032x}", rand::random::<u128>()),
            fence: attempt.fence,
        };
        self.note(What::Start, &receipt, &attempt)?;
        reach("in_handler");
        if work.turned_away_first && attempt.number == 1 {
            self.note(What::Release, &receipt, &attempt)?;
            return Ok(turned_away());
        }
        sleep(Duration::from_millis(work.work_ms)).await;
        let outcome = outcome(&receipt)?;
        if let (Some(accounts), Some(lease)) = (&self.accounts, &attempt.lease) {
            if let Err(error) = accounts.book(&receipt, lease, &outcome).await {
                // The transaction was rolled back, or committed with its outcome: in both cases the
                // store has the truth.
                eprintln!("not booked: {error:#}");
                self.note(What::Release, &receipt, &attempt)?;
                return Ok(turned_away());
            }
        } else {
            let Receipt { caller, key, run, .. } = receipt.clone();
            ledger::effect(&self.ledger, &Effect { caller, key, run }).await?;
        }
        reach("after_effect");
        sleep(Duration::from_millis(work.work_ms)).await;
        self.note(What::Answer, &receipt, &attempt)?;
        Ok(outcome.into_response())
    }

    fn note(&self, what: What, receipt: &Receipt, attempt: &Attempt) -> Result<()> {
        let Receipt { caller, key, intent, run, fence } = receipt.clone();
        self.log.write(&Step {
            what,
            at: clock::now(),
            caller,
            key,
            intent,
            run,
            fence,
            attempt: attempt.number,
        })
    }
}

/// The outcome of a receipt, with headers that are recorded, too.
fn outcome(receipt: &Receipt) -> Result<Outcome> {
    let headers = [
        ("content-type", Bytes::from_static(b"application/json")),
        ("location", format!("/effects/{}", receipt.run).into()),
        ("etag", format!("\"{}\"", receipt.fence).into()),
    ];
    Ok(Outcome::new(201)?.with_headers(headers)?.with_body(serde_json::to_vec(receipt)?)?)
}

/// The answer that nothing happened, for the layer and for a gateway.
fn turned_away() -> Response {
    let headers =
        [(RETRY_AFTER, "0"), (axum::http::HeaderName::from_static("idempotency-settle"), "release")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, Settle::Release, "come again").into_response()
}
