//! The meaning of an error of Redis.

use redis::{RedisError, ServerError, ServerErrorKind};

use super::address::Address;
use crate::words::error::StoreError;

/// A redirection: the server that has to be asked instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// The server at this address, from now on.
    Moved(Address),
    /// The server at this address, this time only.
    Ask(Address),
}

/// The meaning of a server's refusal of one command. It was not applied: scripts write last, and
/// once.
pub(super) fn of_server(error: &ServerError, asked: &Address) -> Result<Elsewhere, StoreError> {
    let text = || format!("Redis at {asked} said: {} {}", error.code(), error.details().unwrap_or_default());
    let elsewhere = |of: fn(Address) -> Elsewhere| {
        let target = error.details().and_then(|details| details.rsplit_once(' ')).map(|(_, target)| target);
        target
            .and_then(|target| redirected(target, asked))
            .map(of)
            .ok_or_else(|| StoreError::unavailable(text()))
    };
    match error.kind() {
        Some(ServerErrorKind::Moved) => elsewhere(Elsewhere::Moved),
        Some(ServerErrorKind::Ask) => elsewhere(Elsewhere::Ask),
        Some(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::NoScript,
        ) => Err(StoreError::unavailable(text())),
        Some(_) => Err(StoreError::refused(text())),
        None => Err(match error.code() {
            "OOM" | "MISCONF" | "BUSY" | "NOREPLICAS" | "UNBLOCKED" => StoreError::unavailable(text()),
            "WRONGTYPE" => StoreError::corrupt("the name of the record holds something that is not a record"),
            _ => StoreError::refused(text()),
        }),
    }
}

/// The address in `host:port`; without a host, the host of the server that redirects.
fn redirected(target: &str, asked: &Address) -> Option<Address> {
    match (target.strip_prefix(':'), asked) {
        (Some(port), Address::Tcp(host, _)) => Some(Address::Tcp(host.clone(), port.parse().ok()?)),
        _ => {
            let (host, port) = target.rsplit_once(':')?;
            Some(Address::Tcp(host.to_owned(), port.parse().ok()?))
        }
    }
}

/// The meaning of a failure to connect or to log in: no command was sent.
pub(super) fn of_connection(error: RedisError, address: &Address) -> StoreError {
    let refused = error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let message = format!("could not connect to Redis at {address}");
    if refused { StoreError::refused(message) } else { StoreError::unavailable(message) }.with_source(error)
}
