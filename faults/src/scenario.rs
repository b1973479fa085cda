//! The scenarios: store, policy, faults, and the expected result.

use std::time::Duration;

use crate::checker::{Kind, Policy};

/// A round: a store, a policy, faults, and the expected result.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) front: Front,
    pub(crate) policy: Policy,
    pub(crate) faults: &'static [Fault],
    pub(crate) length: Duration,
    /// The retention, if it is so short that work may outlast it.
    pub(crate) retention: Option<Duration>,
    /// The percentage of errands that take longer than a lease, or than that retention.
    pub(crate) slow_percent: u32,
    /// Set if the round checks that processes release their resources.
    pub(crate) measures_memory: bool,
    /// The maximum number of repeats of an errand that has its answer.
    pub(crate) repeats: u32,
    pub(crate) expected: Expected,
}

impl Scenario {
    /// Returns `true` if the round needs a disk that can be filled.
    pub(crate) fn needs_small_disk(&self) -> bool {
        matches!(self.place, Place::PostgresOnSmallDisk | Place::SqliteOnSmallDisk)
    }

    /// Returns `true` if no process is killed or stopped. A round under `retry` must not disturb
    /// the store either: a lease that cannot be renewed ends.
    pub(crate) fn spares_processes(&self) -> bool {
        use Fault::{Kill, KillUpstream, Pause, PauseBriefly};
        !self.faults.iter().any(|fault| matches!(fault, Kill | KillUpstream | Pause | PauseBriefly))
    }

    /// Returns `true` if a hook examines held keys, and may find that nothing happened.
    pub(crate) fn reconciles(&self) -> bool {
        self.faults.contains(&Fault::TakeoverInSlowCommit)
    }

    /// Returns `true` if the Postgres server is killed.
    pub(crate) fn kills_postgres(&self) -> bool {
        let kills = [Fault::RestartPostgres, Fault::Promote];
        self.faults.iter().any(|fault| kills.contains(fault))
    }
}

/// The store of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Postgres,
    /// Postgres on a disk that can be filled.
    PostgresOnSmallDisk,
    /// Postgres with a synchronous standby.
    SyncPair,
    /// Postgres with an asynchronous standby that has received no data since the beginning of the
    /// round.
    AsyncPair,
    /// One Redis, which syncs its log before it answers.
    Redis,
    /// One Redis in front of Postgres.
    Tiered,
    /// A Redis cluster in front of Postgres.
    TieredCluster,
    /// A Redis cluster alone, with a replica that has received no data since the beginning of the
    /// round.
    RedisCluster,
    Sqlite,
    SqliteOnSmallDisk,
}

/// The service that clients call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// Two services with the layer.
    Layer,
    /// Two gateways, each in front of a service without the layer.
    Gateway,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed, and its next life ends at one of the failpoints.
    Kill,
    /// The service behind a gateway is killed.
    KillUpstream,
    /// A process is stopped for three leases.
    Pause,
    /// A process is stopped just long enough for another to take over.
    PauseBriefly,
    /// Answers to clients are dropped, with their connections.
    CutClients,
    /// Answers of the store are dropped, with their connections.
    CutStore,
    /// The grants of one process arrive only after their leases, while the slow commit of another
    /// process's takeover is in progress.
    TakeoverInSlowCommit,
    /// The server ends all connections.
    EndBackends,
    /// Postgres is killed and restarted.
    RestartPostgres,
    /// The primary is killed, its standby is promoted, and the old primary becomes the standby.
    Promote,
    FlushRedis,
    RestartRedis,
    /// Redis is stopped for a second.
    PauseRedis,
    /// A master of the cluster is killed, and its replica promoted.
    FailOverRedis,
    /// The clock of the application jumps by up to an hour.
    MoveClock,
    /// The disk of the store is full for a second.
    FillDisk,
}

/// The expected result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No violation.
    Nothing,
    /// A violation of one of these kinds: the store forgets, as documented.
    Reported(&'static [Kind]),
    /// A violation of one of these kinds: the product makes this mistake on purpose.
    Caught(&'static str, &'static [Kind]),
}
