//! Stores by their URLs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::any::AnyStore;
use super::memory::MemoryStore;
#[cfg(feature = "postgres")]
use super::postgres::PostgresOptions;
#[cfg(feature = "redis")]
use super::redis::RedisOptions;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use crate::words::error::StoreError;

/// The URL of a store.
///
/// | URL | store | feature |
/// | --- | --- | --- |
/// | `memory:` | [`MemoryStore`] | |
/// | `sqlite:FILE` | `SqliteStore` | `sqlite` |
/// | `postgres://…`, `postgresql://…` | `PostgresStore`; see `PostgresOptions::new` | `postgres` |
/// | `redis://…` and the other schemes that begin with `redis` | `RedisStore`; see `RedisOptions::new` | `redis` |
///
/// A URL may contain a password. Neither `Debug` nor `Display` shows it.
///
/// ```
/// use semel::store::StoreUrl;
///
/// assert_eq!("memory:".parse::<StoreUrl>()?, StoreUrl::Memory);
/// assert!("mongodb://db".parse::<StoreUrl>().is_err());
/// # Ok::<(), semel::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// A store in the memory of this process.
    Memory,
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A database of Postgres.
    Postgres(SecretUrl),
    /// A Redis.
    Redis(SecretUrl),
}

/// A URL that may contain a password: it is shown without its login and its parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The whole URL, with its password.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

impl StoreUrl {
    /// Opens the store. The schema may be missing; see [`AnyStore::migrate`].
    ///
    /// # Errors
    /// Refused if the crate was built without the feature of the store, or if the store refuses its
    /// URL or the login; unavailable if it cannot be reached.
    pub async fn open(&self) -> Result<AnyStore, StoreError> {
        match self {
            Self::Memory => Ok(AnyStore::Memory(MemoryStore::new())),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => SqliteStore::open(file).await.map(AnyStore::Sqlite),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                PostgresOptions::new(url.expose())?.connect().await.map(AnyStore::Postgres)
            }
            #[cfg(feature = "redis")]
            Self::Redis(url) => RedisOptions::new(url.expose())?.connect().await.map(AnyStore::Redis),
            #[cfg(not(all(feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => Err(self.featureless()),
        }
    }

    /// The file of the store, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(file) => Some(file),
            _ => None,
        }
    }

    /// Returns `true` if a handler can record its outcome in the transaction of its effect in such
    /// a store, as [`Policy::transactional`](crate::Policy::transactional) requires.
    pub fn completes_in_transactions(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Reads the options in the URL, without opening the store.
    fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory => Ok(()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => PostgresOptions::new(url.expose()).map(drop),
            #[cfg(feature = "redis")]
            Self::Redis(url) => RedisOptions::new(url.expose()).map(drop),
            #[cfg(not(all(feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => Err(self.featureless()),
        }
    }

    #[cfg(not(all(feature = "postgres", feature = "redis", feature = "sqlite")))]
    fn featureless(&self) -> StoreError {
        let feature = match self {
            Self::Memory => "default",
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Redis(_) => "redis",
        };
        StoreError::refused(format!("the crate semel was built without its feature `{feature}`"))
    }
}

impl FromStr for StoreUrl {
    type Err = StoreError;

    /// Reads a URL, with the options in it.
    fn from_str(url: &str) -> Result<Self, StoreError> {
        let store = match url.split_once(':') {
            Some(("memory", "")) => Self::Memory,
            Some(("sqlite", rest)) => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => return Err(StoreError::refused("it names no file: write sqlite:FILE")),
                file => Self::Sqlite(file.into()),
            },
            Some(("postgres" | "postgresql", _)) => Self::Postgres(SecretUrl(url.to_owned())),
            Some((scheme, _)) if scheme.starts_with("redis") => Self::Redis(SecretUrl(url.to_owned())),
            _ => {
                return Err(StoreError::refused(
                    "it is none of sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, redis://HOST and memory:",
                ));
            }
        };
        store.check()?;
        Ok(store)
    }
}

/// The URL, without its login and its parameters.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(url) | Self::Redis(url) => url.fmt(f),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Opens the store of a URL, of a store that the program chooses at run time; see [`StoreUrl`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel::StoreError> {
/// use semel::Once;
///
/// let store = semel::store::open("memory:").await?;
/// store.migrate().await?;
/// let once = Once::new(store);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`StoreUrl::open`], and refused if the text is not the URL of a store.
pub async fn open(url: &str) -> Result<AnyStore, StoreError> {
    url.parse::<StoreUrl>()?.open().await
}

/// A URL without its login and its parameters, which may hold another login. If they cannot be told
/// apart, because passwords may contain any character, the host is hidden, too. The text need not
/// be the URL of a store.
pub fn redacted(url: &str) -> String {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let (shown, parameters) = url.split_once('?').unwrap_or((url, ""));
    match shown.split_once("://") {
        // libpq also accepts the form `host=… password=…`.
        _ if url.split(':').next().is_some_and(|scheme| scheme.contains('=')) => "***".to_owned(),
        Some((scheme, _)) if parameters.contains('@') => format!("{scheme}://***"),
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}://***@{place}"),
            None => shown.to_owned(),
        },
        // A text that is not a URL may be a mistyped one with its password.
        None if ["sqlite", "memory"].contains(&scheme) => shown.to_owned(),
        None => format!("{scheme}:***"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_login_is_not_shown() {
        for (url, shown) in [
            ("postgres://ann:secret@db/app?sslpassword=secret", "postgres://***@db/app"),
            ("postgres://ann:se@cret@db/app", "postgres://***@db/app"),
            ("redis://:secret@cache:6379/1", "redis://***@cache:6379/1"),
            ("redis://cache", "redis://cache"),
            ("sqlite:semel.db", "sqlite:semel.db"),
            ("host=db password=secret", "***"),
            ("postgres:/ann:secret@db", "postgres:***"),
            ("redis:secret@cache", "redis:***"),
            ("secret", ":***"),
            ("host=db password=a://secret", "***"),
            ("postgres://ann:se?cret@db/app", "postgres://***"),
            ("postgres://ann:s@e?cret@db/app", "postgres://***"),
            ("postgres://db/app?password=se@cret", "postgres://***"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[cfg(all(feature = "postgres", feature = "redis", feature = "sqlite"))]
    #[test]
    fn a_url_is_the_store_of_its_scheme_and_hides_its_password() {
        let url = |text: &str| text.parse::<StoreUrl>().unwrap();
        assert_eq!(url("memory:"), StoreUrl::Memory);
        for file in ["sqlite:/var/semel.db", "sqlite:///var/semel.db"] {
            assert_eq!(url(file), StoreUrl::Sqlite("/var/semel.db".into()));
        }
        for secret in ["postgres://ann:secret@db/app", "redis://:secret@cache/0"] {
            let url = url(secret);
            assert!(!format!("{url} {url:?}").contains("secret"), "{url:?}");
            assert_eq!(url.completes_in_transactions(), secret.starts_with("postgres"));
            let (StoreUrl::Postgres(kept) | StoreUrl::Redis(kept)) = &url else { panic!("{url:?}") };
            assert_eq!(kept.expose(), secret);
            assert!(!format!("{kept} {kept:?}").contains("secret"), "{kept:?}");
        }
    }

    #[test]
    fn a_url_of_no_store_is_refused_without_its_password() {
        for bad in ["mysql://ann:secret@db", "secret", "sqlite:", "memory:secret", ""] {
            let refused = bad.parse::<StoreUrl>().unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("secret"), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_store_is_opened_by_its_url() {
        let store = open("memory:").await.unwrap();
        assert_eq!((store.name(), store.needs_pruning()), ("memory", true));
        assert_eq!(store.migrate().await.unwrap(), 0);
        store.close().await;
    }
}
