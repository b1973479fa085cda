//! The gateway: a reverse proxy that gives a service in any language the semantics of the layer.
//!
//! A request arrives over a connection that is screened, is checked at the door, finds its route in
//! the table, and is answered by the layer with the upstream as the inner service. A request
//! without a key passes through.
//!
//! - `accept/`: connections of clients.
//! - `request/`: one request, from the door to the call of the layer.
//! - `upstream/`: the service behind the gateway.
//! - `state`: the state that all requests share, and the part that a reload replaces.
//! - `ceiling`: the watch over the size of the store.
//! - `told`: the log lines about scopes and bounds.
//! - `meter`: the gateway's own metrics.

mod accept;
mod request;
mod upstream;
mod ceiling;
mod state;
mod told;
mod meter;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use semel::Once;
use semel::admin::{Ceiling, Inspect, Pruner, Pruning, continuously_prune};
use semel::http::{IdempotencyLayer, Memory};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Guard, Health};
use crate::config::{Config, KeysAt, Settings};
use crate::log;
use crate::readiness::Readiness;
use crate::stores::Opened;
use state::State;
use told::{tell_bounds, tell_scopes};

/// The time limit for closing the store at the end.
const CLOSE: Duration = Duration::from_secs(5);

pub(crate) use accept::tls::client as trusting;

/// Serves until a signal asks to stop.
///
/// # Errors
/// If the configuration or the store cannot be used, or an address is taken.
pub(crate) async fn run(flags: Settings) -> Result<()> {
    let config = Config::load(&flags)?;
    log::start(config.log_format);
    let mut signals = Signals::new()?;
    let metrics = admin::record()?;
    // The admin listener is opened before any request is accepted: a gateway that fails to start
    // must not have requests in progress.
    let admin = match config.admin {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let gateway = Gateway::start(config).await?;
    let admin = admin.map(|listener| admin::serve(listener, gateway.health()?, metrics)).transpose()?;
    while let Told::Reload = signals.next().await {
        gateway.reload(&flags);
    }
    tokio::select! {
        () = gateway.stop() => {}
        told = signals.stop() => tracing::warn!(signal = told, "told twice to stop; what is under way is left to its lease"),
    }
    drop(admin);
    Ok(())
}

/// Refuses a configuration with which a gateway could not start, as far as that is visible without
/// a store.
///
/// # Errors
/// If a URL or a file in it cannot be used.
pub(crate) fn check(config: &Config) -> Result<()> {
    config.place.check()?;
    crate::gateway::accept::tls::client(config.upstream_ca.as_deref())?;
    check_keys(config)?;
    config.tls.as_ref().map(crate::gateway::accept::tls::server).transpose()?;
    Ok(())
}

/// Refuses unusable files of token keys. Keys behind a URL are only known once they are fetched.
fn check_keys(config: &Config) -> Result<()> {
    config.tokens().try_for_each(|jwt| match &jwt.keys {
        KeysAt::File(path) => crate::gateway::request::jwt::check_file(path),
        KeysAt::Url(_) => Ok(()),
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("could not listen on {address}"))
}

/// A running gateway.
pub(crate) struct Gateway {
    state: Arc<State>,
    store: Opened,
    layer: IdempotencyLayer,
    address: SocketAddr,
    pruner: Option<Pruner>,
    _watch: Option<AbortOnDropHandle<()>>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Gateway {
    /// Opens the store and listens.
    ///
    /// # Errors
    /// If either fails.
    pub(crate) async fn start(config: Config) -> Result<Self> {
        crate::gateway::accept::files::raise(&config);
        let listener = bind(config.listen).await?;
        let address = listener.local_addr()?;
        let store = Opened::open_before_cache(&config.place, config.cache_first).await?;
        if config.migrate.unwrap_or_else(|| store.migrates_itself()) {
            migrate(&store).await.context("could not bring the schema of the store up to date")?;
        }
        store.probe().await.context("the store cannot be used")?;
        let once = Once::new(Arc::clone(&store.store)).with_owner(&owner(address)).without_pruning();
        let limits = config.limits;
        let secrets = config.principal_secrets.all().iter().map(String::as_str);
        let mut layer = IdempotencyLayer::over(once)
            .with_principal_secrets(secrets)
            .with_memory(Memory::new(config.max_memory))
            .with_max_attempts(limits.max_attempts);
        layer.prepare().await.context("callers cannot be told apart by their credentials")?;
        tell_scopes(&config);
        tell_bounds(&config);
        if let Some(limit) = limits.max_unsettled_per_caller {
            layer = layer.with_max_unsettled_per_caller(limit);
        }
        if let Some(rate) = limits.max_new_per_caller {
            layer = layer.with_max_new_per_caller(rate.count, rate.within);
        }
        let mut watch = None;
        if let Some(limit) = limits.max_store {
            let ceiling = Ceiling::new();
            layer = layer.with_ceiling(ceiling.clone());
            watch = Some(ceiling::watch(store.clone(), limit, ceiling).await?);
        }
        let pruner = config.prune.then(|| continuously_prune(Arc::clone(&store.store), Pruning::default()));
        let state = Arc::new(State::new(config, layer.clone())?);
        state.read_keys().await;
        let (connections, stop) = (TaskTracker::new(), CancellationToken::new());
        connections.spawn(crate::gateway::accept::accept(
            listener,
            Arc::clone(&state),
            connections.clone(),
            stop.clone(),
        ));
        tracing::info!("listening on {address}");
        Ok(Self { state, store, layer, address, pruner, _watch: watch, connections, stop })
    }

    /// The address of the listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The store of the records.
    pub(crate) fn store(&self) -> Arc<dyn Inspect> {
        Arc::clone(&self.store.store)
    }

    /// The data for the admin listener.
    ///
    /// # Errors
    /// If the key of the probe record breaks a limit.
    fn health(&self) -> Result<Health> {
        let (shown, guarded) = (Arc::clone(&self.state), Arc::clone(&self.state));
        let guard = move || {
            let current = guarded.current();
            Guard { hosts: current.config.admin_hosts.clone(), token: current.config.admin_token.clone() }
        };
        let readiness = Readiness::new(self.store.clone(), self.layer.clone(), self.stop.clone())?;
        Ok(Health::new(readiness, move || shown.current().config.shown(), guard))
    }

    /// Reloads the configuration; if the new one cannot be used, the old one stays in force.
    fn reload(&self, flags: &Settings) {
        match Config::load(flags).and_then(|config| self.state.reload(config)) {
            Ok(()) => {
                let state = Arc::clone(&self.state);
                tokio::spawn(async move { state.read_keys().await });
                let current = self.state.current();
                tell_scopes(&current.config);
                tell_bounds(&current.config);
                tracing::info!("the configuration was reloaded");
            }
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the configuration cannot be used; the old one stays in force"
                );
            }
        }
    }

    /// Stops accepting connections, and waits a limited time for requests in progress. A request
    /// that does not end in time is left to its lease: an attempt that has begun is never released.
    pub(crate) async fn stop(self) {
        let until = Instant::now() + self.state.current().config.drain;
        tracing::info!("stopping: requests under way may end");
        self.stop.cancel();
        self.layer.end_waits();
        self.connections.close();
        let ended = async {
            self.connections.wait().await;
            // Waits for the attempts whose clients have disconnected.
            self.layer.drain().await;
        };
        if timeout_at(until, ended).await.is_err() {
            tracing::warn!("not all requests have ended in time; their keys are left to their leases");
        }
        if let Some(pruner) = self.pruner {
            let _ = timeout(CLOSE, pruner.stop()).await;
        }
        if timeout(CLOSE, self.store.close()).await.is_err() {
            tracing::warn!("the store did not close in time");
        }
        tracing::info!("stopped");
    }
}

/// Migrates the schema, unless older processes may be at work on it that could not go on: whether they
/// are stopped, only the operator knows.
async fn migrate(store: &Opened) -> Result<()> {
    let breaking = store.missing_breaking().await?;
    ensure!(
        breaking.is_empty(),
        "processes of an older version cannot run beside migration {}: stop all of them, run `semel migrate up --yes` \
         with the same --store, and start the gateway again",
        breaking.join(", ")
    );
    store.migrate().await?;
    Ok(())
}

/// The name of this process for operators: the host, the address and the process number.
fn owner(address: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {address} process {}", host.trim(), std::process::id()).trim().to_owned()
}

/// The signals that a gateway handles.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

enum Told {
    Reload,
    Stop,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("could not listen for signals");
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
        }
    }

    async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
