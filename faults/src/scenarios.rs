//! The rounds, in the order in which they run.

use std::time::Duration;

use crate::checker::{Kind, Policy};
use crate::scenario::{Expected, Fault, Front, Place, Scenario};

use Fault::{
    CutClients, CutStore, EndBackends, FailOverRedis, FillDisk, FlushRedis, Kill, KillUpstream, MoveClock,
    Pause, PauseBriefly, PauseRedis, Promote, RestartPostgres, RestartRedis, TakeoverInSlowCommit,
};

/// The kinds of violations that show a second effect.
const DOUBLES: &[Kind] = &[Kind::SecondEffect, Kind::SecondRun];

/// A retention so short that slow work outlasts it, and so long that a client that keeps repeating
/// misses no outcome.
const SHORT_RETENTION: Option<Duration> = Some(Duration::from_secs(3));

/// The faults around processes that are not killed.
const STEADY: &[Fault] =
    &[CutClients, CutStore, EndBackends, FlushRedis, CutClients, RestartPostgres, PauseRedis, RestartRedis];

/// A round of ten minutes without restarts, to measure the resources of the processes.
pub(crate) fn soak() -> Scenario {
    Scenario {
        name: "soak-tiered-hold",
        place: Place::Tiered,
        front: Front::Layer,
        policy: Policy::Hold,
        faults: STEADY,
        length: Duration::from_secs(600),
        retention: None,
        slow_percent: 1,
        measures_memory: true,
        repeats: 40,
        expected: Expected::Nothing,
    }
}

/// The rounds in which every promise has to hold.
pub(crate) fn trials(length: Duration, repeats: u32) -> Vec<Scenario> {
    let round = |name, place, front, policy, faults| Scenario {
        name,
        place,
        front,
        policy,
        faults,
        length,
        retention: None,
        slow_percent: 1,
        measures_memory: false,
        repeats,
        expected: Expected::Nothing,
    };
    use Front::{Gateway, Layer};
    use Policy::{Hold, Retry, Transactional};
    vec![
        round(
            "postgres-hold",
            Place::Postgres,
            Layer,
            Hold,
            &[Kill, CutClients, CutStore, Kill, EndBackends, CutClients, Kill, RestartPostgres, Pause],
        ),
        round(
            "postgres-retry",
            Place::Postgres,
            Layer,
            Retry,
            &[Kill, CutClients, MoveClock, Kill, CutStore, Kill, CutClients, Kill, MoveClock, Pause],
        ),
        round(
            "postgres-transactional",
            Place::Postgres,
            Layer,
            Transactional,
            &[Kill, CutClients, CutStore, Kill, EndBackends, Kill, CutClients, Kill, RestartPostgres],
        ),
        round(
            "postgres-pause-transactional",
            Place::Postgres,
            Layer,
            Transactional,
            &[Kill, CutClients, CutStore, EndBackends, Kill, CutClients, Pause],
        ),
        // Leases are renewed: a living owner is never taken over.
        Scenario { slow_percent: 40, ..round("calm-retry", Place::Postgres, Layer, Retry, &[CutClients]) },
        Scenario {
            retention: SHORT_RETENTION,
            slow_percent: 40,
            // This round has half as many errands per time as the others, so it takes twice as
            // long.
            length: 2 * length,
            ..round("outlasts-retention-hold", Place::Postgres, Layer, Hold, &[CutClients, CutStore, Kill])
        },
        round("slow-commit-hold", Place::Postgres, Layer, Hold, &[TakeoverInSlowCommit, CutClients]),
        Scenario { measures_memory: true, ..round("steady-tiered-hold", Place::Tiered, Layer, Hold, STEADY) },
        round(
            "redis-retry",
            Place::Redis,
            Layer,
            Retry,
            &[Kill, CutClients, CutStore, Kill, PauseRedis, CutClients, RestartRedis],
        ),
        round(
            "promotion-hold",
            Place::SyncPair,
            Layer,
            Hold,
            &[Promote, Kill, CutClients, CutStore, Kill, CutClients],
        ),
        round(
            "promotion-transactional",
            Place::SyncPair,
            Layer,
            Transactional,
            &[Kill, CutClients, Promote, CutStore],
        ),
        round(
            "tiered-hold",
            Place::Tiered,
            Layer,
            Hold,
            &[FlushRedis, Kill, CutStore, CutClients, RestartRedis, Kill, CutClients, PauseRedis, Kill],
        ),
        round(
            "tiered-cluster-retry",
            Place::TieredCluster,
            Layer,
            Retry,
            &[FailOverRedis, CutClients, Kill, FlushRedis, Kill],
        ),
        round(
            "gateway-sqlite-hold",
            Place::Sqlite,
            Gateway,
            Hold,
            &[Kill, CutClients, KillUpstream, Kill, CutClients, Pause],
        ),
        round(
            "gateway-postgres-retry",
            Place::Postgres,
            Gateway,
            Retry,
            &[Kill, CutClients, KillUpstream, CutStore, Kill, EndBackends, RestartPostgres],
        ),
        round(
            "sqlite-retry",
            Place::Sqlite,
            Layer,
            Retry,
            &[Kill, CutClients, Kill, CutClients, Kill, Pause],
        ),
        round("sqlite-full-hold", Place::SqliteOnSmallDisk, Layer, Hold, &[FillDisk, Kill, CutClients]),
        round("postgres-full-retry", Place::PostgresOnSmallDisk, Layer, Retry, &[FillDisk, Kill, CutClients]),
    ]
}

/// The rounds in which the checker must report a violation: stores that forget, as documented, and
/// mistakes on purpose. A checker that finds nothing here would find nothing anywhere.
pub(crate) fn controls() -> Vec<Scenario> {
    let round = |name, place, policy, faults: &'static [Fault], expected| Scenario {
        name,
        place,
        front: Front::Layer,
        policy,
        faults,
        length: Duration::from_secs(4),
        retention: None,
        // Slow enough to be taken over during the work, where there are takeovers.
        slow_percent: if policy == Retry { 40 } else { 1 },
        measures_memory: false,
        repeats: 4,
        expected,
    };
    use Policy::{Hold, Retry};
    vec![
        round("redis-alone-fails-over", Place::RedisCluster, Hold, &[], Expected::Reported(DOUBLES)),
        round("async-promotion", Place::AsyncPair, Hold, &[], Expected::Reported(DOUBLES)),
        round(
            "mistake-complete-without-fence",
            Place::Postgres,
            Retry,
            &[PauseBriefly],
            Expected::Caught("complete_without_fence", &[Kind::StaleOutcome]),
        ),
        round(
            "mistake-renew-nothing",
            Place::Postgres,
            Retry,
            &[],
            Expected::Caught("renew_nothing", &[Kind::EarlyTakeover]),
        ),
        round(
            "mistake-release-on-drop",
            Place::Sqlite,
            Hold,
            &[CutClients],
            Expected::Caught("release_on_drop", DOUBLES),
        ),
        round(
            "mistake-answer-before-record",
            Place::Sqlite,
            Hold,
            &[Kill],
            Expected::Caught("answer_before_record", &[Kind::OutcomeLost, Kind::FalseConflict]),
        ),
        round(
            "mistake-unscoped-key",
            Place::Sqlite,
            Hold,
            &[],
            Expected::Caught("unscoped_key", &[Kind::ForeignBody]),
        ),
        round(
            "mistake-takeover-under-hold",
            Place::Sqlite,
            Hold,
            &[Kill],
            Expected::Caught("takeover_under_hold", &[Kind::SecondRun]),
        ),
        Scenario {
            retention: SHORT_RETENTION,
            slow_percent: 40,
            length: Duration::from_secs(8),
            ..round(
                "mistake-expiry-from-claim",
                Place::Postgres,
                Hold,
                &[CutClients],
                Expected::Caught("expiry_from_claim", DOUBLES),
            )
        },
        Scenario {
            length: Duration::from_secs(8),
            ..round(
                "mistake-confirm-by-lock",
                Place::Postgres,
                Hold,
                &[TakeoverInSlowCommit],
                Expected::Caught("confirm_by_lock", &[Kind::SecondRun]),
            )
        },
        round(
            "mistake-hot-tier-grants",
            Place::Tiered,
            Hold,
            &[FlushRedis],
            Expected::Caught("hot_tier_grants", DOUBLES),
        ),
    ]
}
