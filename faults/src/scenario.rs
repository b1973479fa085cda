//! What is tried: which store, which policy, which faults, and what has to come of it.

use std::time::Duration;

use crate::checker::{Kind, Policy};

/// A round: a store, a policy, faults, and what has to come of it.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) front: Front,
    pub(crate) policy: Policy,
    pub(crate) faults: &'static [Fault],
    pub(crate) length: Duration,
    /// For how long outcomes are kept, if for so short a time that work outlasts it.
    pub(crate) retention: Option<Duration>,
    /// How many of a hundred errands take longer than a lease, or than that retention.
    pub(crate) slow_percent: u32,
    /// Whether it is looked at that processes let go of what they took.
    pub(crate) measures_memory: bool,
    /// How often callers repeat at most what they have the answer to.
    pub(crate) repeats: u32,
    pub(crate) expected: Expected,
}

impl Scenario {
    /// Whether it takes a disk that can be filled.
    pub(crate) fn needs_small_disk(&self) -> bool {
        matches!(self.place, Place::PostgresOnSmallDisk | Place::SqliteOnSmallDisk)
    }

    /// Whether no process is killed or stopped. One under `retry` has to spare the store, too: a lease that cannot be renewed
    /// is over.
    pub(crate) fn spares_processes(&self) -> bool {
        use Fault::{Kill, KillUpstream, Pause, PauseBriefly};
        !self.faults.iter().any(|fault| matches!(fault, Kill | KillUpstream | Pause | PauseBriefly))
    }

    /// Whether held keys are looked into by a hook, which may find that nothing happened.
    pub(crate) fn reconciles(&self) -> bool {
        self.faults.contains(&Fault::TakeoverInSlowCommit)
    }

    /// Whether the server itself is killed.
    pub(crate) fn kills_postgres(&self) -> bool {
        let kills = [Fault::RestartPostgres, Fault::Promote];
        self.faults.iter().any(|fault| kills.contains(fault))
    }
}

/// Where the records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Postgres,
    /// On a disk that can be filled.
    PostgresOnSmallDisk,
    /// With a standby that every commit waits for.
    SyncPair,
    /// With a standby that nobody waits for, and that has not heard of anything since the round began.
    AsyncPair,
    /// One Redis, which syncs what it is told before it answers.
    Redis,
    /// One Redis before Postgres.
    Tiered,
    /// A cluster of Redis before Postgres.
    TieredCluster,
    /// A cluster of Redis alone, one of whose replicas has not heard of anything since the round began.
    RedisCluster,
    Sqlite,
    SqliteOnSmallDisk,
}

/// What clients talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// Two services with the layer.
    Layer,
    /// Two gateways, each before a service that knows nothing.
    Gateway,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed, and its next life ends at one of the failpoints.
    Kill,
    /// The service behind a gateway is killed.
    KillUpstream,
    /// A process stands still for three leases.
    Pause,
    /// A process stands still for so long that another has just taken over.
    PauseBriefly,
    /// Answers to clients are lost, with their connections.
    CutClients,
    /// Answers of the store are lost, with their connections.
    CutStore,
    /// The answers that grant keys to one process come only after its leases, while the takeover of another process is in
    /// its commit, which takes long.
    TakeoverInSlowCommit,
    /// The server ends all connections.
    EndBackends,
    /// Postgres is killed, and started again.
    RestartPostgres,
    /// The primary is killed, its standby promoted, and it becomes the standby.
    Promote,
    FlushRedis,
    RestartRedis,
    /// Redis stands still for a second.
    PauseRedis,
    /// A master of the cluster is killed, and its replica promoted.
    FailOverRedis,
    /// The clock of the application jumps by up to an hour.
    MoveClock,
    /// The disk of the store is full for a second.
    FillDisk,
}

/// What has to come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Everything holds.
    Nothing,
    /// The checker reports this: the store forgets, as is documented.
    Reported(&'static [Kind]),
    /// The checker reports one of these: the product makes this mistake on purpose.
    Caught(&'static str, &'static [Kind]),
}
