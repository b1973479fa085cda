//! What an error of Redis means.

use redis::{RedisError, ServerError, ServerErrorKind};

use super::address::Address;
use crate::words::error::StoreError;

/// Where a question has to be asked instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// At this server, from now on.
    Moved(Address),
    /// At this server, this time.
    Ask(Address),
}

/// What a server's refusal of one question means. It was not applied: scripts write last, and once.
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
            "WRONGTYPE" => StoreError::corrupt("something that is no record has its name"),
            _ => StoreError::refused(text()),
        }),
    }
}

/// `host:port`; without a host, that of the server that said so.
fn redirected(target: &str, asked: &Address) -> Option<Address> {
    match (target.strip_prefix(':'), asked) {
        (Some(port), Address::Tcp(host, _)) => Some(Address::Tcp(host.clone(), port.parse().ok()?)),
        _ => {
            let (host, port) = target.rsplit_once(':')?;
            Some(Address::Tcp(host.to_owned(), port.parse().ok()?))
        }
    }
}

/// What a failure to connect or to greet means: nothing was asked.
pub(super) fn of_connection(error: RedisError, address: &Address) -> StoreError {
    let refused = error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let message = format!("could not connect to Redis at {address}");
    if refused { StoreError::refused(message) } else { StoreError::unavailable(message) }.with_source(error)
}
