//! The addresses of servers, from a URL.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::store::shared::tls::Trust;
use crate::words::error::StoreError;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// `host`, `host:port` or `[host]:port`; `None` if it is neither.
    pub(super) fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']')?;
                (host, rest.strip_prefix(':').or(rest.is_empty().then_some("")))
            }
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = match port? {
            "" => default_port,
            port => port.parse().ok()?,
        };
        (!host.is_empty()).then(|| Self::Tcp(host.to_owned(), port))
    }
}

/// The servers to connect to, and the way to find them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// This server; or the cluster that it is part of.
    Server(Address),
    /// The cluster to which these servers belong.
    Cluster(Vec<Address>),
    /// The master of a service, according to one of these sentinels.
    Sentinels { sentinels: Vec<Address>, service: String },
}

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) place: Place,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) tls: Option<(Trust, Option<PathBuf>)>,
}

impl Url {
    /// Parses a URL in one of the forms listed at `RedisOptions::new`.
    ///
    /// # Errors
    /// Refused, naming the wrong part, unless that could be part of a password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let may_show = !url.contains('@') && !url.contains("pass");
        Self::read(url).map_err(|wrong| {
            let part = if may_show { format!("{:?}", wrong.part) } else { "a part of it".to_owned() };
            StoreError::refused(format!("the Redis URL cannot be parsed: {part} {}", wrong.why))
        })
    }

    fn read(url: &str) -> Result<Self, Wrong> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| Wrong::new(url, "has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parameters = Parameters::parse(query)?;
        let (secure, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => match scheme.strip_prefix("redis") {
                Some(kind) => (false, kind),
                None if scheme == "unix" => (false, "+unix"),
                None => return Err(Wrong::new(scheme, "is not a scheme that is known")),
            },
        };
        if !secure && (parameters.trust.is_some() || parameters.roots.is_some()) {
            return Err(Wrong::new("sslmode", "is for rediss:// only"));
        }
        if kind == "+unix" && !secure {
            let place = Place::Server(Address::Unix(decoded(rest)?.into()));
            let Parameters { database, username, password, .. } = parameters;
            return Ok(Self { place, username, password, database: database.unwrap_or(0), tls: None });
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (username, password) = login.split_once(':').unwrap_or((login, ""));
        let given = |text: &str| -> Result<Option<String>, Wrong> {
            if text.is_empty() { Ok(None) } else { decoded(text).map(Some) }
        };
        let default_port = if kind == "+sentinel" { 26_379 } else { 6_379 };
        let host = |host| Address::parse(host, default_port).ok_or_else(|| Wrong::new(host, "is not a host"));
        let hosts: Vec<Address> = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        let (place, database) = match kind {
            "" => match <[Address; 1]>::try_from(hosts) {
                Ok([host]) => (Place::Server(host), path),
                Err(_) => {
                    return Err(Wrong::new(scheme, "takes one host: several are for clusters and sentinels"));
                }
            },
            "+cluster" => (Place::Cluster(hosts), path),
            "+sentinel" => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return Err(Wrong::new(path, "is not the name of a service, which the sentinels want"));
                }
                (Place::Sentinels { sentinels: hosts, service: decoded(service)? }, database)
            }
            _ => return Err(Wrong::new(scheme, "is not a scheme that is known")),
        };
        if !database.is_empty() {
            parameters.set_database(database)?;
        }
        let trust = parameters.trust();
        Ok(Self {
            place,
            username: given(username)?.or(parameters.username),
            password: given(password)?.or(parameters.password),
            database: parameters.database.unwrap_or(0),
            tls: secure.then_some((trust, parameters.roots)),
        })
    }
}

/// The parameters behind the question mark.
#[derive(Default)]
struct Parameters {
    database: Option<i64>,
    username: Option<String>,
    password: Option<String>,
    trust: Option<Trust>,
    roots: Option<PathBuf>,
}

impl Parameters {
    /// The required trust. A URL that names authorities requires one of them, as with Postgres.
    fn trust(&self) -> Trust {
        match self.trust {
            None => Trust::Host,
            Some(Trust::AnyServer) if self.roots.is_some() => Trust::Authority,
            Some(trust) => trust,
        }
    }

    fn parse(query: &str) -> Result<Self, Wrong> {
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "db" => parameters.set_database(value)?,
                "user" => parameters.username = Some(decoded(value)?),
                "pass" => parameters.password = Some(decoded(value)?),
                "sslrootcert" => parameters.roots = Some(decoded(value)?.into()),
                "sslmode" => {
                    parameters.trust = Some(match value {
                        "require" => Trust::AnyServer,
                        "verify-ca" => Trust::Authority,
                        "verify-full" => Trust::Host,
                        _ => return Err(Wrong::new(value, "is no sslmode: require, verify-ca, verify-full")),
                    });
                }
                _ => return Err(Wrong::new(name, "is not a parameter that is known")),
            }
        }
        Ok(parameters)
    }

    fn set_database(&mut self, text: &str) -> Result<(), Wrong> {
        let number = text.parse().ok().filter(|number: &i64| *number >= 0);
        self.database = Some(number.ok_or_else(|| Wrong::new(text, "is not the number of a database"))?);
        Ok(())
    }
}

fn decoded(text: &str) -> Result<String, Wrong> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| Wrong::new(text, "is not text"))
}

/// The part of a URL that is wrong, and the reason.
struct Wrong {
    part: String,
    why: &'static str,
}

impl Wrong {
    fn new(part: &str, why: &'static str) -> Self {
        Self { part: part.to_owned(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.to_owned(), port)
    }

    #[test]
    fn every_kind_of_url_is_understood() {
        let plain = Url::parse("redis://h").unwrap();
        assert_eq!(plain.place, Place::Server(tcp("h", 6379)));
        assert_eq!((plain.database, plain.tls, plain.password), (0, None, None));

        let secure =
            Url::parse("rediss://me:p%40ss@h:7000/3?sslmode=verify-ca&sslrootcert=%2Fca.pem").unwrap();
        assert_eq!(secure.place, Place::Server(tcp("h", 7000)));
        assert_eq!(secure.tls, Some((Trust::Authority, Some("/ca.pem".into()))));
        assert_eq!((secure.username.as_deref(), secure.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!(secure.database, 3);
        assert_eq!(Url::parse("rediss://h").unwrap().tls, Some((Trust::Host, None)));

        let socket = Url::parse("redis+unix:///run/redis.sock?db=2&pass=x").unwrap();
        assert_eq!(socket.place, Place::Server(Address::Unix("/run/redis.sock".into())));
        assert_eq!((socket.database, socket.password.as_deref()), (2, Some("x")));
        assert_eq!(Url::parse("unix:///a").unwrap().place, Place::Server(Address::Unix("/a".into())));

        let cluster = Url::parse("redis+cluster://:secret@a:1,[::1]:2,c").unwrap();
        assert_eq!(cluster.place, Place::Cluster(vec![tcp("a", 1), tcp("::1", 2), tcp("c", 6379)]));
        assert_eq!((cluster.username, cluster.password.as_deref()), (None, Some("secret")));

        let sentinels = Url::parse("rediss+sentinel://a,b:1/main/4?sslmode=require").unwrap();
        let service = "main".to_owned();
        let of = vec![tcp("a", 26_379), tcp("b", 1)];
        assert_eq!(sentinels.place, Place::Sentinels { sentinels: of, service });
        assert_eq!((sentinels.database, sentinels.tls), (4, Some((Trust::AnyServer, None))));
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_is_given_away() {
        let why = |url: &str| Url::parse(url).unwrap_err().to_string();
        let understood = "store refused: the Redis URL cannot be parsed: ";
        for (url, said) in [
            ("h", "\"h\" has no scheme"),
            ("http://h", "\"http\" is not a scheme that is known"),
            ("redis+ring://h", "\"redis+ring\" is not a scheme that is known"),
            ("redis://h:port", "\"h:port\" is not a host"),
            ("redis+cluster://a,,b", "\"\" is not a host"),
            ("redis://a,b", "\"redis\" takes one host: several are for clusters and sentinels"),
            ("redis://u:pa/ss@h", "a part of it is not a host"),
            ("redis://u:12/secret@h", "a part of it is not the number of a database"),
            ("redis://u:top?secret@h", "a part of it is not a parameter that is known"),
            ("redis+unix:///a?pass=b&c", "a part of it is not a parameter that is known"),
            ("redis://h/x", "\"x\" is not the number of a database"),
            ("redis://h/-1", "\"-1\" is not the number of a database"),
            ("redis+sentinel://h", "\"\" is not the name of a service, which the sentinels want"),
            ("redis://h?sslmode=verify-full", "\"sslmode\" is for rediss:// only"),
            ("rediss://h?sslmode=perhaps", "\"perhaps\" is no sslmode: require, verify-ca, verify-full"),
            ("redis://h?timeout=1", "\"timeout\" is not a parameter that is known"),
        ] {
            assert_eq!(why(url), format!("{understood}{said}"), "{url}");
        }
    }
}
