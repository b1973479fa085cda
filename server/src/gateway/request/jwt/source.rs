//! The source of an issuer's keys, and the limits of their age.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex as Lock, RwLock};
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::Refused;
use super::keys::Keys;
use crate::config::{Config, JwtConfig, KeysAt};

/// The age at which keys are reloaded in the background.
const REFRESH_AFTER: Duration = Duration::from_secs(300);
/// The longest use of keys that cannot be reloaded: an issuer revokes a key by no longer publishing
/// it.
const USED_FOR: Duration = Duration::from_secs(3_600);
/// The shortest interval between reloads, whatever tokens arrive.
pub(super) const RELOAD_EVERY: Duration = Duration::from_secs(10);
/// The time limit for a server to send the keys.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 256 << 10;

const NO_KEY: &str = "it has no key for RS256, ES256 or EdDSA";

/// The keys of an issuer, as last read.
pub(in crate::gateway) struct KeySource {
    at: KeysAt,
    trust: RwLock<ClientConfig>,
    state: RwLock<State>,
    /// Held by the task that reads.
    reading: Mutex<()>,
}

#[derive(Default)]
struct State {
    keys: Option<(Arc<Keys>, Instant)>,
    tried: Option<Instant>,
    /// Set if the last try failed.
    failed: bool,
}

impl KeySource {
    fn new(at: KeysAt, trust: ClientConfig) -> Arc<Self> {
        Arc::new(Self { at, trust: RwLock::new(trust), state: RwLock::default(), reading: Mutex::default() })
    }

    /// The keys. Old keys are reloaded in the background and still used until they are too old.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Arc<Keys>, Refused> {
        match self.read_last() {
            Some((keys, age)) if age < REFRESH_AFTER => Ok(keys),
            Some((keys, age)) if age < USED_FOR => {
                if self.may_read() {
                    tokio::spawn(Arc::clone(self).read(false));
                }
                Ok(keys)
            }
            _ => {
                self.read_on_own_task().await;
                let read = self.read_last().filter(|(_, age)| *age < USED_FOR);
                read.map(|(keys, _)| keys).ok_or(Refused::NoKeys)
            }
        }
    }

    /// Keys read after these; `None` if there are none. The reload for this is rate-limited.
    ///
    /// # Errors
    /// If the last reload failed: whether the issuer has newer keys is unknown.
    pub(super) async fn newer_than(self: &Arc<Self>, old: &Arc<Keys>) -> Result<Option<Arc<Keys>>, Refused> {
        let newer = || self.read_last().map(|(keys, _)| keys).filter(|keys| !Arc::ptr_eq(keys, old));
        if newer().is_none() {
            self.read_on_own_task().await;
        }
        let has_failed = || self.state.read().failed;
        match newer() {
            None if has_failed() => Err(Refused::NoKeys),
            newer => Ok(newer),
        }
    }

    fn read_last(&self) -> Option<(Arc<Keys>, Duration)> {
        let state = self.state.read();
        state.keys.as_ref().map(|(keys, at)| (Arc::clone(keys), at.elapsed()))
    }

    fn may_read(&self) -> bool {
        let state = self.state.read();
        state.tried.is_none_or(|tried| tried.elapsed() >= RELOAD_EVERY)
    }

    /// Reads the keys on a task of its own, so that a client that disconnects does not interrupt
    /// it.
    async fn read_on_own_task(self: &Arc<Self>) {
        // A panic leaves the keys unchanged.
        let _ended = tokio::spawn(Arc::clone(self).read(false)).await;
    }

    /// Reads the keys, unless the last try was a moment ago.
    async fn read(self: Arc<Self>, at_once: bool) {
        let _turn = self.reading.lock().await;
        if !at_once && !self.may_read() {
            return;
        }
        self.state.write().tried = Some(Instant::now());
        let fetched = self.fetch().await.and_then(|keys| self.check(keys));
        self.state.write().failed = fetched.is_err();
        match fetched {
            Ok(keys) => {
                if keys.is_empty() {
                    tracing::warn!(keys = %self.at, "the issuer publishes no key for RS256, ES256 or EdDSA: all tokens are refused");
                } else if at_once {
                    tracing::info!(keys = %self.at, "read the keys of the issuer");
                }
                let read = Some((Arc::new(keys), Instant::now()));
                self.state.write().keys = read;
            }
            Err(error) => {
                tracing::warn!(keys = %self.at, error = format!("{error:#}"), "the keys of the issuer could not be read");
            }
        }
    }

    /// Refuses an empty set at first, because it is more likely a mistake. Later, an empty set
    /// revokes the known keys.
    fn check(&self, keys: Keys) -> Result<Keys> {
        ensure!(!keys.is_empty() || self.read_last().is_some(), NO_KEY);
        Ok(keys)
    }

    async fn fetch(&self) -> Result<Keys> {
        match &self.at {
            KeysAt::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_file(&path)).await?
            }
            KeysAt::Url(uri) => {
                let trust = self.trust.read().clone();
                let fetched = timeout(PATIENCE, download(uri.clone(), trust)).await;
                Keys::parse(&fetched.context("they did not come in time")??)
            }
        }
    }
}

/// Checks that the keys of a file can be used.
///
/// # Errors
/// If the file cannot be read, or has no usable key.
pub(in crate::gateway) fn check_file(path: &Path) -> Result<()> {
    let keys = read_file(path)?;
    ensure!(!keys.is_empty(), "could not use the keys in {}: {NO_KEY}", path.display());
    Ok(())
}

fn read_file(path: &Path) -> Result<Keys> {
    let read = || {
        let size = std::fs::metadata(path)?.len();
        ensure!(size <= MAX_BYTES as u64, "it has more than {MAX_BYTES} bytes");
        Keys::parse(&std::fs::read(path)?)
    };
    read().with_context(|| format!("could not use the keys in {}", path.display()))
}

async fn download(uri: Uri, trust: ClientConfig) -> Result<Bytes> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // The configuration refuses plain HTTP, except for this host.
    let tls = HttpsConnectorBuilder::new()
        .with_tls_config(trust)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // Keys are read seldom, so connections are not kept.
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(tls);
    let request = Request::get(uri).header("accept", "application/json").body(Empty::new())?;
    let response = client.request(request).await?;
    // Redirects are not followed, because they could lead anywhere.
    ensure!(response.status() == StatusCode::OK, "the server answered {}", response.status());
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
    Ok(body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes())
}

/// The sources of all routes: routes with the same keys share a source, also across a reload.
#[derive(Default)]
pub(in crate::gateway) struct KeySources(Lock<HashMap<KeysAt, Arc<KeySource>>>);

impl KeySources {
    /// The source of these keys. An existing source keeps its trust settings, because the
    /// configuration may still be refused.
    pub(in crate::gateway) fn of(&self, config: &JwtConfig, trust: &ClientConfig) -> Arc<KeySource> {
        let mut sources = self.0.lock();
        let new = || KeySource::new(config.keys.clone(), trust.clone());
        Arc::clone(sources.entry(config.keys.clone()).or_insert_with(new))
    }

    /// Applies the trust settings of the configuration in force to all sources.
    pub(in crate::gateway) fn set_trust(&self, trust: &ClientConfig) {
        for source in self.0.lock().values() {
            *source.trust.write() = trust.clone();
        }
    }

    /// Reads the keys that a configuration names, and drops the other sources.
    pub(in crate::gateway) async fn read(&self, config: &Config) {
        let wanted: Vec<&KeysAt> = config.tokens().map(|jwt| &jwt.keys).collect();
        let sources: Vec<_> = {
            let mut sources = self.0.lock();
            sources.retain(|at, _| wanted.contains(&at));
            sources.values().cloned().collect()
        };
        for source in sources {
            source.read(true).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::accept::tls;

    fn set(keys: &str) -> Keys {
        Keys::parse(keys.as_bytes()).expect("a JWK Set")
    }

    /// Regression: a refused reload had changed the trust settings.
    #[test]
    fn a_configuration_changes_the_trust_of_a_source_only_once_it_is_in_force() {
        let (old, mut new) = (tls::client(None).unwrap(), tls::client(None).unwrap());
        new.alpn_protocols = vec![b"new".to_vec()];
        let config = JwtConfig {
            keys: KeysAt::Url(Uri::from_static("https://issuer.example/keys")),
            issuer: "i".to_owned(),
            audience: "a".to_owned(),
            claim: "sub".to_owned(),
        };
        let sources = KeySources::default();
        let source = sources.of(&config, &old);
        let protocols = |source: &KeySource| source.trust.read().alpn_protocols.len();
        assert!(Arc::ptr_eq(&source, &sources.of(&config, &new)));
        assert_eq!(protocols(&source), 0);
        sources.set_trust(&new);
        assert_eq!(protocols(&source), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_cannot_be_reloaded_are_used_for_an_hour() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key =
            r#"{"kty":"OKP","kid":"ed","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        std::fs::write(file.path(), format!(r#"{{"keys":[{key}]}}"#)).unwrap();
        let source = KeySource::new(KeysAt::File(file.path().into()), tls::client(None).unwrap());
        let first = source.get().await.expect("they can be read");
        drop(file);
        for after in [REFRESH_AFTER * 2, USED_FOR - REFRESH_AFTER * 3] {
            tokio::time::advance(after).await;
            assert!(Arc::ptr_eq(&source.get().await.expect("they are known"), &first));
        }
        tokio::time::advance(REFRESH_AFTER).await;
        assert_eq!(source.get().await.err(), Some(Refused::NoKeys));
    }

    /// Regression: keys that the issuer had revoked were used for an hour.
    #[test]
    fn a_set_without_keys_is_an_error_at_first_and_takes_back_keys_later() {
        let source = KeySource::new(KeysAt::File("keys.json".into()), tls::client(None).unwrap());
        assert!(source.check(set(r#"{"keys":[]}"#)).is_err());
        source.state.write().keys = Some((Arc::new(set(r#"{"keys":[]}"#)), Instant::now()));
        assert!(source.check(set(r#"{"keys":[{"kty":"new"}]}"#)).is_ok());
    }
}
