//! The options of a store on Postgres.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresStore;
use super::migrate;
use super::schema::Schema;
use crate::store::limits;
use crate::store::shared::tls::{self, Trust};
use crate::words::error::StoreError;

/// The options of a store on Postgres: the address of the database, the schema and the limits.
///
/// ```
/// use semel::store::PostgresOptions;
///
/// let options = PostgresOptions::new("postgres://semel@db1,db2/app?target_session_attrs=read-write&sslmode=verify-full")?
///     .with_schema("idempotency");
/// # Ok::<(), semel::StoreError>(())
/// ```
///
/// The setters take any value in any order. [`connect`](Self::connect) checks all values, and its
/// error names the setter and the values that it accepts.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) schema: Schema,
    pub(super) connections: usize,
    pub(super) additional_connections: usize,
    pub(super) timeout: Duration,
    passwords: Option<Passwords>,
}

/// The source of a password for each connection.
type Passwords = Arc<dyn Fn() -> BoxFuture<'static, Result<String, StoreError>> + Send + Sync>;

impl PostgresOptions {
    /// The time after which a connection without an answer is given up, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// The number of connections that share a load, unless set. Two is the best value in
    /// measurements: one batch is prepared while the other waits for the disk.
    pub const DEFAULT_CONNECTIONS: usize = 2;
    /// The largest number of additional connections, unless set. They make the few callers of one
    /// process faster, and many processes that share a Postgres slower.
    pub const DEFAULT_ADDITIONAL_CONNECTIONS: usize = 0;
    /// The largest number of connections that commit batches. More connections make the batches
    /// smaller, not the store faster.
    pub const MAX_CONNECTIONS: usize = limits::MAX_CONNECTIONS;

    /// Options from a URL, or from `key=value` pairs, in the form of libpq.
    ///
    /// `sslmode` has the meaning that libpq gives it: `disable`, `prefer` (the default), `require`,
    /// `verify-ca`, `verify-full`, the last two with the authorities in the file `sslrootcert`, or
    /// those of the system. A Unix socket has no TLS. Several hosts are tried in turn; with
    /// `target_session_attrs=read-write` until one accepts writes.
    ///
    /// # Errors
    /// Refused if the text cannot be parsed, or a certificate cannot be read. The message contains
    /// no password.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let (text, mode, roots) = without_ssl(url);
        let mut config: Config = match text.parse() {
            Ok(config) => config,
            Err(error) => {
                return Err(StoreError::refused("the Postgres URL cannot be parsed").with_source(error));
            }
        };
        let (mode, trust) = match mode.as_deref() {
            None | Some("prefer") => (SslMode::Prefer, Trust::AnyServer),
            Some("disable") => (SslMode::Disable, Trust::AnyServer),
            Some("require") if roots.is_some() => (SslMode::Require, Trust::Authority),
            Some("require") => (SslMode::Require, Trust::AnyServer),
            Some("verify-ca") => (SslMode::Require, Trust::Authority),
            Some("verify-full") => (SslMode::Require, Trust::Host),
            Some(other) => {
                return Err(StoreError::refused(format!(
                    "sslmode {other:?} is not one of disable, prefer, require, verify-ca, verify-full"
                )));
            }
        };
        let sockets_only = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if sockets_only { SslMode::Disable } else { mode });
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_tcp_user_timeout().is_none() {
            // The timeout detects a server that vanished without closing the connection, also for
            // connections that wait for long answers.
            config.tcp_user_timeout(Duration::from_secs(30));
            config.keepalives_idle(Duration::from_secs(30));
        }
        Ok(Self {
            config,
            tls: MakeRustlsConnect::new(tls::config(trust, roots.as_deref())?),
            schema: Schema::new(Schema::DEFAULT),
            connections: Self::DEFAULT_CONNECTIONS,
            additional_connections: Self::DEFAULT_ADDITIONAL_CONNECTIONS,
            timeout: Self::DEFAULT_TIMEOUT,
            passwords: None,
        })
    }

    /// The same options with a password that is asked for before each connection: one that rotates,
    /// or a token that is valid for minutes, such as those of AWS IAM and Azure.
    ///
    /// A store opens its connections itself, since the batches of the group commit need them, and
    /// opens new ones whenever a server goes away. An error of the callback counts as a server that
    /// cannot be reached, and it is asked again for the next try.
    ///
    /// ```
    /// use semel::store::PostgresOptions;
    ///
    /// let options = PostgresOptions::new("postgres://semel@db/app?sslmode=verify-full")?
    ///     .with_passwords(|| async {
    ///         let file = std::fs::read_to_string("/run/secrets/postgres")?;
    ///         Ok::<_, std::io::Error>(file.trim_end().to_owned())
    ///     });
    /// # Ok::<(), semel::StoreError>(())
    /// ```
    #[must_use]
    pub fn with_passwords<F, E>(mut self, password: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.passwords = Some(Arc::new(move || {
            let password = password();
            Box::pin(async move {
                let unknown = StoreError::unavailable("the password for Postgres could not be found out");
                password.await.map_err(|error| unknown.with_source(error))
            })
        }));
        self
    }

    /// The same options with these TLS settings in the place of those of the URL: for client
    /// certificates, and for authorities that are not in a file. `sslmode` then says only whether
    /// the connection has to be encrypted.
    #[must_use]
    pub fn with_tls(self, config: rustls::ClientConfig) -> Self {
        Self { tls: MakeRustlsConnect::new(config), ..self }
    }

    /// Returns `true` if each connection asks for its password.
    pub(super) fn asks_for_passwords(&self) -> bool {
        self.passwords.is_some()
    }

    /// The configuration of the next connection.
    pub(super) async fn next(&self) -> Result<Config, StoreError> {
        let mut config = self.config.clone();
        if let Some(passwords) = &self.passwords {
            config.password(passwords().await?);
        }
        Ok(config)
    }

    /// Sets the schema that holds the records; `semel` unless set. The name has 1 to 63 bytes, does
    /// not begin with `pg_`, and has no apostrophe, backslash, `$$` or control characters.
    #[must_use]
    pub fn with_schema(self, name: &str) -> Self {
        Self { schema: Schema::new(name), ..self }
    }

    /// Sets the number of connections that share a load: 1 to [`Self::MAX_CONNECTIONS`]. They stay
    /// open.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Sets the largest number of additional connections, none unless set: 0 to
    /// [`Self::MAX_CONNECTIONS`]. They are opened while there are so few callers that each operation
    /// goes alone, or while answers take long because of the network or the disk; they are closed
    /// after ten seconds without work. One that the server refuses is of no consequence. They cost a
    /// Postgres that many processes share more than they bring.
    #[must_use]
    pub fn with_additional_connections(self, connections: usize) -> Self {
        Self { additional_connections: connections, ..self }
    }

    /// Sets the time after which a connection without an answer is given up, from 100 ms to 10
    /// minutes; its batch is then sent again over another.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Checks all values that were set.
    ///
    /// # Errors
    /// Refused if one is out of its limits; the message names its setter and the limits.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.schema.check()?;
        limits::connections(self.connections)?;
        limits::additional_connections(self.additional_connections)?;
        limits::time("with_timeout", self.timeout, Duration::from_millis(100), limits::MAX_TIMEOUT)
    }

    /// The whole schema as a script for psql, for operators who run migrations with their own
    /// tools. It needs no connection.
    ///
    /// # Errors
    /// Refused if a value is out of its limits.
    pub fn print_migrations(&self) -> Result<String, StoreError> {
        self.check()?;
        Ok(migrate::print(&self.schema))
    }

    /// Connects; the schema may still be missing, see [`PostgresStore::migrate`].
    ///
    /// # Errors
    /// Refused if a value is out of its limits, the server rejects the login, or it is too old;
    /// unavailable if it cannot be reached.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        PostgresStore::with_options(self).await
    }
}

/// The text without `sslmode` and `sslrootcert`, of which the driver knows only a part, and the
/// values of both.
fn without_ssl(url: &str) -> (String, Option<String>, Option<PathBuf>) {
    let (mut mode, mut roots) = (None, None);
    let mut keep = |pair: &&str| match pair.split_once('=') {
        Some(("sslmode", value)) => {
            mode = Some(value.trim_matches('\'').to_owned());
            false
        }
        Some(("sslrootcert", value)) => {
            roots =
                Some(percent_decode_str(value.trim_matches('\'')).decode_utf8_lossy().into_owned().into());
            false
        }
        _ => true,
    };
    let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let text = match url.split_once('?') {
        Some((base, query)) if is_url => {
            let rest: Vec<&str> = query.split('&').filter(&mut keep).collect();
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) }
        }
        _ if is_url => url.to_owned(),
        _ => url.split_whitespace().filter(&mut keep).collect::<Vec<_>>().join(" "),
    };
    (text, mode, roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        PostgresOptions::new(url).unwrap().config.get_ssl_mode()
    }

    #[test]
    fn sslmode_is_that_of_libpq() {
        assert_eq!(mode("postgres://u@h/d"), SslMode::Prefer);
        assert_eq!(mode("postgres://u@h/d?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://u@h/d?sslmode=verify-full&application_name=x"), SslMode::Require);
        assert_eq!(mode("host=h user=u sslmode=verify-ca"), SslMode::Require);
        assert_eq!(mode("postgres://u@%2Ftmp/d?sslmode=require"), SslMode::Disable);
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_is_given_away() {
        let refused = |url: &str| PostgresOptions::new(url).err().expect("refused").to_string();
        assert_eq!(
            refused("postgres://u@h/d?sslmode=perhaps"),
            "store refused: sslmode \"perhaps\" is not one of disable, prefer, require, verify-ca, verify-full"
        );
        assert_eq!(
            refused("postgres://u@h/d?sslmode=verify-ca&sslrootcert=%2Fno%20where"),
            "store refused: could not read the certificates in /no where"
        );
        let secret = PostgresOptions::new("postgres://u:secret@h:port/d").err().expect("refused");
        assert!(!format!("{secret:?}").contains("secret"), "{secret:?}");
    }

    #[tokio::test]
    async fn values_out_of_their_limits_are_refused_by_setter_before_a_connection_is_opened() {
        // Nothing listens there, which would be another error.
        let plain = || PostgresOptions::new("postgres://u@127.0.0.1:1/d").unwrap();
        for (options, why) in [
            (plain().with_connections(0), "with_connections(0): set 1 to 16 connections"),
            (plain().with_connections(17), "with_connections(17): set 1 to 16 connections"),
            (plain().with_timeout(Duration::ZERO), "with_timeout(0ns): set a time from 100ms to 600s"),
            (
                plain().with_schema("pg_x").with_timeout(Duration::from_secs(1)),
                "with_schema(\"pg_x\"): set a name of 1 to 63 bytes that does not begin with pg_ and has no \
                 apostrophe, backslash, $$ or control character",
            ),
        ] {
            let refused = options.connect().await.err().expect("refused").to_string();
            assert_eq!(refused, format!("store refused: {why}"));
        }
        assert!(plain().with_schema("pg_x").print_migrations().is_err());
    }

    #[test]
    fn other_parts_of_the_url_are_left_alone() {
        let (text, mode, roots) = without_ssl("postgres://u@h/d?a=1&sslmode=require&b=2&sslrootcert=x");
        assert_eq!((text.as_str(), mode.as_deref()), ("postgres://u@h/d?a=1&b=2", Some("require")));
        assert_eq!(roots, Some("x".into()));
        assert_eq!(without_ssl("host=h password='a b'").0, "host=h password='a b'");
    }
}
