//! The state that all requests share, and the part that a reload replaces.

use std::sync::Arc;

use anyhow::{Result, ensure};
use parking_lot::RwLock;
use rustls::ClientConfig;
use semel::http::IdempotencyLayer;
use tokio_rustls::TlsAcceptor;

use super::meter::Meter;
use crate::gateway::accept::linger::Places;
use crate::gateway::accept::tls;
use crate::gateway::accept::workers::Workers;
use crate::gateway::check_keys;
use crate::gateway::request::jwt::KeySources;
use crate::gateway::request::passing::Passing;
use crate::gateway::request::table::Table;
use crate::gateway::upstream;
use crate::gateway::upstream::line::Doubts;

use crate::config::{Config, JwtConfig};

/// The state that all requests share.
pub(super) struct State {
    current: RwLock<Arc<Current>>,
    layer: IdempotencyLayer,
    keys: KeySources,
    passing: Passing,
    doubts: Doubts,
    pub(super) workers: Workers,
    pub(super) meter: Meter,
    pub(super) lingering: Places,
}

/// A configuration, and the tables built from it.
pub(super) struct Current {
    pub(super) config: Config,
    /// One table for each worker, with connections of its own.
    pub(super) tables: Vec<Table>,
    pub(super) tls: Option<TlsAcceptor>,
    /// The certificate authorities for upstreams and issuers.
    trust: ClientConfig,
}

impl State {
    /// # Errors
    /// If a file in the configuration cannot be used.
    pub(super) fn new(config: Config, layer: IdempotencyLayer) -> Result<Self> {
        let workers = Workers::start()?;
        let keys = KeySources::default();
        let passing = Passing::new(config.max_connections);
        let doubts = Doubts::default();
        let current = Current::new(config, &layer, &keys, &workers, &passing, &doubts)?;
        let current = RwLock::new(Arc::new(current));
        let (meter, lingering) = (Meter::new(), Places::default());
        Ok(Self { current, layer, keys, passing, doubts, workers, meter, lingering })
    }

    /// The configuration in force.
    pub(super) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }

    /// Reads the keys for tokens. Keys that cannot be read are tried again when a token arrives.
    pub(super) async fn read_keys(&self) {
        self.keys.read(&self.current().config).await;
    }

    /// Puts another configuration in force for all later requests.
    ///
    /// # Errors
    /// If it cannot be used, or changes a setting that needs a restart; then the old one stays.
    pub(super) fn reload(&self, config: Config) -> Result<()> {
        let old = self.current();
        let fixed = |config: &Config| {
            let Config {
                listen,
                admin,
                place,
                realm,
                max_connections,
                max_memory,
                limits,
                migrate,
                cache_first,
                prune,
                log_format,
                principal_secrets,
                ..
            } = config;
            [
                ("listen", listen.to_string()),
                ("admin", format!("{admin:?}")),
                ("store", place.store_url().to_owned()),
                ("cache", format!("{:?}", place.cache)),
                // Every key would become another key.
                ("realm", realm.clone()),
                ("migrate", format!("{migrate:?}")),
                ("cache-first", cache_first.to_string()),
                ("prune", prune.to_string()),
                ("max-connections", max_connections.to_string()),
                ("max-attempts", limits.max_attempts.to_string()),
                ("max-store", format!("{:?}", limits.max_store)),
                ("max-unsettled-per-caller", format!("{:?}", limits.max_unsettled_per_caller)),
                ("max-new-per-caller", format!("{:?}", limits.max_new_per_caller)),
                ("max-memory", max_memory.to_string()),
                ("log-format", format!("{log_format:?}")),
                ("principal-secret-file", format!("{:?}", principal_secrets.file())),
            ]
        };
        for ((name, before), (_, after)) in fixed(&old.config).into_iter().zip(fixed(&config)) {
            ensure!(before == after, "{name} cannot change without a restart");
        }
        let Self { layer, keys, passing, doubts, workers, .. } = self;
        let current = Arc::new(Current::new(config, layer, keys, workers, passing, doubts)?);
        let trust = current.trust.clone();
        *self.current.write() = current;
        keys.set_trust(&trust);
        Ok(())
    }
}

impl Current {
    fn new(
        config: Config,
        layer: &IdempotencyLayer,
        keys: &KeySources,
        workers: &Workers,
        passing: &Passing,
        doubts: &Doubts,
    ) -> Result<Self> {
        check_keys(&config)?;
        let trust = tls::client(config.upstream_ca.as_deref())?;
        let keys = |jwt: &JwtConfig| keys.of(jwt, &trust);
        let table = |_| {
            let client = upstream::client(trust.clone(), doubts.clone());
            Table::new(&config, layer, &keys, &client, passing)
        };
        let tables = workers.handles().iter().map(table).collect::<Result<_>>()?;
        let tls = config.tls.as_ref().map(tls::server).transpose()?;
        Ok(Self { config, tables, tls, trust })
    }
}
