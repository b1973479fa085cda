//! The options of a store on Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;
use tokio_rustls::TlsConnector;

use super::RedisStore;
use super::address::{Place, Url};
use crate::store::limits;
use crate::store::shared::tls;
use crate::words::error::StoreError;

/// The options of a store on Redis: the addresses, the names of the records and the limits.
///
/// ```
/// use semel::store::RedisOptions;
///
/// let options = RedisOptions::new("redis+sentinel://sentinel1,sentinel2/main")?.with_prefix("shop").with_replicas(1);
/// # Ok::<(), semel::StoreError>(())
/// ```
///
/// The setters take any value in any order. [`connect`](Self::connect) checks all values, and its
/// error names the setter and the values that it accepts.
#[derive(Clone)]
pub struct RedisOptions {
    pub(super) place: Place,
    pub(super) login: RedisConnectionInfo,
    pub(super) sentinel_login: RedisConnectionInfo,
    pub(super) tls: Option<TlsConnector>,
    pub(super) prefix: Arc<str>,
    pub(super) connections: usize,
    pub(super) timeout: Duration,
    pub(super) eviction_allowed: bool,
    pub(super) replicas: u32,
}

impl RedisOptions {
    /// The time after which a connection without an answer is given up, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
    /// The number of connections to each server, unless set. With two, one batch is prepared and
    /// read while the other is executed.
    pub const DEFAULT_CONNECTIONS: usize = 2;
    /// The largest number of connections to each server. More connections make the batches smaller,
    /// not the store faster.
    pub const MAX_CONNECTIONS: usize = limits::MAX_CONNECTIONS;
    /// The prefix of the names of records, unless set.
    pub const DEFAULT_PREFIX: &str = "semel";

    /// Options from a URL.
    ///
    /// | URL | for |
    /// | --- | --- |
    /// | `redis://user:password@host:6379/0` | one server, or a server of a cluster |
    /// | `rediss://…` | the same over TLS; `sslmode` is `verify-full` (the default), `verify-ca` or `require`, `sslrootcert` a file of authorities instead of the system's, with which `require` is `verify-ca` |
    /// | `redis+unix:///run/redis.sock?db=0&user=…&pass=…` | a Unix socket |
    /// | `redis+sentinel://user:password@sentinel1:26379,sentinel2/service/0`, `rediss+sentinel://…` | the master of a service; the password is that of Redis, see [`Self::with_sentinel_login`] |
    /// | `redis+cluster://host1,host2`, `rediss+cluster://…` | a cluster, by some of its servers |
    ///
    /// # Errors
    /// Refused if the URL cannot be parsed, or a certificate cannot be read. The message contains
    /// no password.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let Url { place, username, password, database, tls } = Url::parse(url)?;
        let tls = tls.map(|(trust, roots)| tls::config(trust, roots.as_deref())).transpose()?;
        Ok(Self {
            place,
            login: login(username.as_deref(), password.as_deref()).set_db(database),
            sentinel_login: login(None, None),
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
            prefix: Self::DEFAULT_PREFIX.into(),
            connections: Self::DEFAULT_CONNECTIONS,
            timeout: Self::DEFAULT_TIMEOUT,
            eviction_allowed: false,
            replicas: 0,
        })
    }

    /// Sets the prefix of the names of records, so that several services can share a database: 1 to
    /// 64 letters, digits, dots, hyphens and underscores.
    #[must_use]
    pub fn with_prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the number of connections to each server: 1 to [`Self::MAX_CONNECTIONS`].
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Sets the time after which a connection without an answer is given up, and terminated at the
    /// server, too: from 10 ms to 10 minutes. The batch is sent again over another connection, if
    /// two seconds in all leave room for that; otherwise its result is unknown.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Allows Redis to evict records when its memory is full. This is right for the hot store of a
    /// [`Tiered`](crate::Tiered), and wrong for a store by itself: a key whose record was evicted
    /// runs again.
    #[must_use]
    pub fn with_eviction_allowed(self) -> Self {
        Self { eviction_allowed: true, ..self }
    }

    /// Makes the store answer only when this many replicas have received the write (`WAIT`), within
    /// the timeout; otherwise the answer is "unknown", and a repeat of the same operation asks
    /// again.
    ///
    /// This makes a loss less likely but does not prevent it: a failover may promote another
    /// replica, and a replica acknowledges before it writes to disk. Where a double run costs
    /// money, put Redis in front of Postgres.
    #[must_use]
    pub fn with_replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// Sets the login for the sentinels; unless set, there is none.
    #[must_use]
    pub fn with_sentinel_login(self, username: Option<&str>, password: &str) -> Self {
        Self { sentinel_login: login(username, Some(password)), ..self }
    }

    /// Checks all values that were set.
    ///
    /// # Errors
    /// Refused if one is out of its limits; the message names its setter and the limits.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.chars().all(fits) {
            return Err(StoreError::refused(format!(
                "with_prefix({:?}): set 1 to 64 letters, digits, dots, hyphens and underscores",
                self.prefix
            )));
        }
        limits::connections(self.connections)?;
        limits::time("with_timeout", self.timeout, Duration::from_millis(10), limits::MAX_TIMEOUT)
    }

    /// Connects.
    ///
    /// # Errors
    /// Refused if a value is out of its limits, or the server rejects the login, or may evict
    /// records although that is not allowed; unavailable if no server can be reached, or only a
    /// replica.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        RedisStore::with_options(self).await
    }
}

fn login(username: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default().set_lib_name("semel", env!("CARGO_PKG_VERSION"));
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    login
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_of_certificates_is_named() {
        let refused = RedisOptions::new("rediss://h?sslrootcert=%2Fno%20where").err().expect("refused");
        assert_eq!(refused.to_string(), "store refused: could not read the certificates in /no where");
    }

    #[tokio::test]
    async fn values_out_of_their_limits_are_refused_by_setter_before_a_connection_is_opened() {
        // Nothing listens there, which would be another error.
        let plain = || RedisOptions::new("redis://127.0.0.1:1").unwrap();
        for (options, why) in [
            (plain().with_connections(17), "with_connections(17): set 1 to 16 connections"),
            (
                plain().with_timeout(Duration::ZERO).with_replicas(1),
                "with_timeout(0ns): set a time from 10ms to 600s",
            ),
            (
                plain().with_prefix("a:b"),
                "with_prefix(\"a:b\"): set 1 to 64 letters, digits, dots, hyphens and underscores",
            ),
        ] {
            let refused = options.connect().await.err().expect("refused").to_string();
            assert_eq!(refused, format!("store refused: {why}"));
        }
    }
}
