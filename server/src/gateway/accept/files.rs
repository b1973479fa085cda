//! The limit of open files: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::gateway::request::passing::RESERVE;

/// The number of other open files: the store's files and connections, the listeners, the log, the
/// threads.
const OTHERS: u64 = 128;

/// Raises the limit of open files to the number that the settings may need, as far as the system
/// allows, and logs a remedy if that is not enough.
pub(in crate::gateway) fn raise(config: &Config) {
    let needed = needed(config);
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < needed && current < most {
        let raised = Rlimit { current: Some(needed.min(most)), maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => current = needed.min(most),
            Err(error) => tracing::warn!(%error, "could not raise the limit of open files"),
        }
    }
    if current < needed {
        tracing::warn!(
            limit = current,
            needed,
            "the limit of open files is lower than what max-connections and max-attempts may need: connections will be \
             refused when it is reached. Raise it (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of Docker), or lower \
             these settings"
        );
    }
}

/// The number of files: a connection per client, a connection to the upstream for each request that
/// is passed through, one for each attempt, and one for each streamed answer beyond the attempts.
fn needed(config: &Config) -> u64 {
    2 * config.max_connections as u64 + config.limits.max_attempts as u64 + RESERVE as u64 + OTHERS
}
