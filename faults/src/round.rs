//! The phases of a round: start, inject faults, heal, settle, check.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::checker::{History, Policy, Terms, Verdict, check};
use crate::client::Client;
use crate::clock;
use crate::footprint::Footprint;
use crate::load::{Load, Style};
use crate::log::Log;
use crate::nemesis::{Nemesis, Stalled};
use crate::programs::Programs;
use crate::scenario::{Front, Place, Scenario};
use crate::sites::{self, Sites};
use crate::tally::{REQUESTS, Tally};
use crate::transaction;
use crate::world::{ASYNC, LEASE_MS, World, ledger_file};

/// The time limit for settling every key after all faults have ended and one lease has passed. A
/// single request may take two seconds on a machine that does other work as well.
const SETTLE: Duration = Duration::from_secs(5);
/// The duration of the load before the first measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// The time for which the harness repeats requests after all faults have ended.
const PATIENCE_US: u64 = 15_000_000;

/// The result of a round.
pub(crate) struct Ended {
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    /// The footprints of the processes before and after, for processes that lived as long.
    pub(crate) footprints: Vec<(Footprint, Footprint)>,
}

/// Runs a round in an empty folder.
pub(crate) async fn run(
    scenario: &Scenario,
    sites: &mut Sites,
    programs: &Programs,
    folder: &Path,
    number: u64,
    seed: u64,
) -> Result<Ended> {
    let world =
        World::start(scenario, sites, programs, folder, number).await.context("could not start the round")?;
    let requests = folder.join("requests");
    let log = Log::open(&requests)?;
    let before = match scenario.measures_memory {
        true => warm_up(&world, &log, seed).await?,
        false => Vec::new(),
    };
    let survivors = scenario.spares_processes();
    let client = Client::new(world.targets(), log, !survivors && scenario.retention.is_none());
    let stalled = stall(scenario.place, sites)?;

    let Scenario { slow_percent, repeats, retention, .. } = *scenario;
    let mut style = Style { slow_percent, repeats, ..style("errand", retention) };
    if scenario.reconciles() {
        // A takeover needs a request for a key that another client still waits for.
        style.double_percent = 90;
    }
    let load = Load::start(&client, style, seed);
    let chance = StdRng::seed_from_u64(seed);
    let turn = usize::try_from(seed % 11).unwrap_or_default();
    let mut nemesis = Nemesis { scenario, world: &world, sites, chance, tally: Tally::default(), turn };
    nemesis.rage().await?;
    nemesis.forget(stalled)?;
    nemesis.heal().await?;
    let healed_at = clock::now();
    let mut tally = nemesis.tally();
    load.settle(healed_at + PATIENCE_US, retention.is_some()).await?;
    drop(client);
    let mut footprints = Vec::new();
    for (process, before) in world.processes.iter().zip(before) {
        footprints.push((before, before.is_back(process).await?));
    }

    if scenario.policy == Policy::Transactional {
        let database = sites::connect(&world.postgres, &world.database).await?;
        let ledger = Log::open(&ledger_file(folder))?;
        for effect in transaction::effects(&database).await? {
            ledger.write(&effect)?;
        }
    }
    let history = History::read(&[requests], &world.handler_logs()?, &[ledger_file(folder)])?;
    world.end(scenario, sites).await.context("could not tidy up")?;
    let terms = Terms {
        policy: scenario.policy,
        lease: Duration::from_millis(LEASE_MS),
        healed_at,
        abandons: scenario.front == Front::Gateway,
        forgets: scenario.policy == Policy::Transactional && scenario.kills_postgres(),
        survivors,
        expires: scenario.retention.is_some(),
        settle: SETTLE,
    };
    let verdict = check(&terms, &history);
    tally.add(REQUESTS, (verdict.counts.requests - verdict.counts.lost) as u64);
    Ok(Ended { verdict, tally, footprints })
}

/// The behaviour of callers whose outcomes are kept for this retention, or for much longer than any
/// round.
fn style(name: &'static str, retention: Option<Duration>) -> Style {
    let lease = Duration::from_millis(LEASE_MS);
    let slow = retention.unwrap_or(lease) * 6 / 5;
    Style {
        name,
        slow_ms: slow.as_millis() as u64,
        slow_percent: 1,
        tries_for: if retention.is_some() { 2 * slow } else { 2 * lease },
        double_percent: 20,
        repeats: 4,
    }
}

/// Runs some load without faults, and measures the footprints after it.
async fn warm_up(world: &World, log: &Log, seed: u64) -> Result<Vec<Footprint>> {
    let client = Client::new(world.targets(), log.clone(), false);
    let load = Load::start(&client, style("warm-up", None), !seed);
    sleep(WARM_UP).await;
    load.settle(clock::now() + PATIENCE_US, false).await?;
    drop(client);
    sleep(WARM_UP).await;
    world.processes.iter().map(Footprint::of).collect()
}

/// Disconnects the replica of a store that has to forget.
fn stall(place: Place, sites: &mut Sites) -> Result<Stalled> {
    block_in_place(|| match place {
        Place::AsyncPair => {
            sites.postgres()?.stall_receiver(ASYNC[1])?;
            Ok(Stalled::Standby)
        }
        Place::RedisCluster => Ok(Stalled::Replica(sites.cluster()?.stop_replication()?)),
        _ => Ok(Stalled::Nothing),
    })
}
