//! The nemesis: injects the faults of a round one after the other, and ends them.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::Signal;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::process::Process;
use crate::proxy::Proxy;
use crate::scenario::{Fault, Place, Scenario};
use crate::sites::{self, Sites};
use crate::tally::Tally;
use crate::world::{ASYNC, LEASE_MS, MAIN, SMALL, SYNC, World};

/// The failpoints at which processes end, from before the claim to after the answer.
pub(crate) const FAILPOINTS: [&str; 11] = [
    "before_claim",
    "before_commit",
    "committed",
    "granted",
    "in_handler",
    "after_effect",
    "before_renew",
    "before_complete",
    "settled",
    "before_release",
    "before_reply",
];

/// A further failpoint where attempts are abandoned: in gateways that lose their upstream.
const ABANDON: &str = "before_abandon";

/// The duration of a fault without an end of its own.
const LASTS: Duration = Duration::from_secs(1);

/// The replica that receives no more data, in a round whose store has to forget.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stalled {
    Nothing,
    Standby,
    /// The servers of the cluster: the master and its replica.
    Replica((usize, usize)),
}

/// The driver of all faults.
pub(crate) struct Nemesis<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) world: &'a World,
    pub(crate) sites: &'a mut Sites,
    pub(crate) chance: StdRng,
    pub(crate) tally: Tally,
    /// The index of the next failpoint.
    pub(crate) turn: usize,
}

impl Nemesis<'_> {
    /// Injects one fault after the other, until the time is over.
    pub(crate) async fn rage(&mut self) -> Result<()> {
        let faults = self.scenario.faults;
        let until = Instant::now() + self.scenario.length;
        let mut number = 0;
        while Instant::now() < until {
            sleep(Duration::from_millis(self.chance.random_range(50..300))).await;
            if let Some(fault) = faults.get(number % faults.len().max(1)) {
                self.inject(*fault).await.with_context(|| format!("could not inject {fault:?}"))?;
            }
            number += 1;
        }
        Ok(())
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Kill => {
                let point = self.next_failpoint();
                let passes = match point {
                    // These failpoints are passed rarely.
                    "before_renew" | "before_release" | ABANDON => self.chance.random_range(1..4),
                    _ => self.chance.random_range(1..60),
                };
                let process = pick(&self.world.processes, &mut self.chance)?;
                process.kill(Some(format!("{point}:{passes}")));
            }
            Fault::KillUpstream => pick(&self.world.upstreams, &mut self.chance)?.kill(None),
            Fault::Pause => self.pause(3 * LEASE_MS).await?,
            Fault::PauseBriefly => self.pause(LEASE_MS * 17 / 10).await?,
            Fault::CutClients => self.world.doors.iter().for_each(|door| door.cut(10)),
            Fault::CutStore => self.world.roads.iter().for_each(|road| road.cut(2)),
            Fault::TakeoverInSlowCommit => self.take_over_in_slow_commit().await?,
            Fault::EndBackends => self.end_backends().await?,
            Fault::RestartPostgres => {
                block_in_place(|| self.sites.restart(MAIN))?;
                self.tally.add("postgres: kill and restart", 1);
            }
            Fault::Promote => {
                block_in_place(|| self.sites.promote(SYNC))?;
                self.tally.add("postgres: promotion", 1);
            }
            Fault::FlushRedis => {
                block_in_place(|| match self.scenario.place {
                    Place::Tiered | Place::Redis => self.sites.flush_hot(),
                    _ => self.sites.cluster()?.flush(),
                })?;
                self.tally.add("redis: flush", 1);
            }
            Fault::RestartRedis => {
                block_in_place(|| self.sites.restart_hot())?;
                self.tally.add("redis: kill and restart", 1);
            }
            Fault::PauseRedis => {
                block_in_place(|| self.sites.signal_hot("STOP"))?;
                sleep(LASTS).await;
                block_in_place(|| self.sites.signal_hot("CONT"))?;
                self.tally.add("redis: pause", 1);
            }
            Fault::FailOverRedis => {
                block_in_place(|| self.sites.cluster()?.fail_any_over())?;
                self.tally.add("redis: failover", 1);
            }
            Fault::MoveClock => {
                let seconds: i32 = self.chance.random_range(-3_600..3_600);
                std::fs::write(&self.world.clock, format!("{seconds:+}\n"))?;
                self.tally.add("move of the application's clock", 1);
            }
            Fault::FillDisk => self.fill_disk().await?,
        }
        Ok(())
    }

    /// The next failpoint in turn; with an upstream that is killed, sometimes the failpoint that
    /// only such a loss leads to.
    fn next_failpoint(&mut self) -> &'static str {
        if !self.world.upstreams.is_empty() && self.chance.random_bool(0.2) {
            return ABANDON;
        }
        self.turn += 1;
        FAILPOINTS[self.turn % FAILPOINTS.len()]
    }

    async fn pause(&mut self, length_ms: u64) -> Result<()> {
        let process = pick(&self.world.processes, &mut self.chance)?;
        process.signal(Signal::STOP);
        sleep(Duration::from_millis(length_ms)).await;
        process.signal(Signal::CONT);
        self.tally.add("pause of a process", 1);
        Ok(())
    }

    async fn end_backends(&mut self) -> Result<()> {
        let client = sites::connect(&self.world.postgres, "postgres").await?;
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
        let ended = client.query(end, &[&self.world.database]).await?.len();
        self.tally.add("postgres: all backends ended", u64::from(ended > 0));
        Ok(())
    }

    /// Delays the grants of one process until their leases are over, while the other is about to
    /// take over.
    async fn take_over_in_slow_commit(&mut self) -> Result<()> {
        let lease = Duration::from_millis(LEASE_MS);
        let road = &self.world.roads[self.chance.random_range(0..self.world.processes.len())];
        // Operations queued while answers are held back form one large batch, whose answer is then
        // lost.
        road.hold_back();
        sleep(lease / 10).await;
        road.let_go();
        sleep(Duration::from_millis(1)).await;
        road.hold_back();
        // Commits of takeovers are in progress from the end of the leases on.
        sleep(lease * 14 / 10).await;
        road.let_go();
        sleep(lease).await;
        self.tally.add("postgres: takeover against a slow commit", 1);
        Ok(())
    }

    async fn fill_disk(&mut self) -> Result<()> {
        let place = self.scenario.place;
        block_in_place(|| self.sites.disk(place)?.fill())?;
        sleep(LASTS).await;
        block_in_place(|| self.sites.disk(place)?.free())?;
        if place == Place::PostgresOnSmallDisk {
            block_in_place(|| self.sites.revive(SMALL))?;
        }
        self.tally.add("disk full", 1);
        Ok(())
    }

    /// Promotes the replica that receives no more data.
    pub(crate) fn forget(&mut self, stalled: Stalled) -> Result<()> {
        block_in_place(|| match stalled {
            Stalled::Nothing => Ok(()),
            Stalled::Standby => {
                self.tally.add("control: promotion of a standby that lags", 1);
                self.sites.promote(ASYNC)
            }
            Stalled::Replica(pair) => {
                self.tally.add("control: failover to a replica that lags", 1);
                self.sites.cluster()?.fail_over(pair)
            }
        })
    }

    /// Ends all faults. When this returns, every process runs, and no process is going to end by
    /// itself.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        let World { doors, roads, processes, upstreams, clock, .. } = self.world;
        doors.iter().chain(roads).for_each(Proxy::heal);
        std::fs::write(clock, "+0\n")?;
        for process in processes.iter().chain(upstreams) {
            process.disarm().await?;
        }
        Ok(())
    }

    /// The number of injected faults of each kind.
    pub(crate) fn tally(mut self) -> Tally {
        let World { doors, roads, processes, upstreams, .. } = self.world;
        self.tally.add("cut before a client's answer", doors.iter().map(Proxy::cuts).sum());
        self.tally.add("cut before a store's answer", roads.iter().map(Proxy::cuts).sum());
        for process in processes.iter().chain(upstreams) {
            for (point, times) in process.ends() {
                self.tally.add(&format!("kill {point}"), times);
            }
        }
        self.tally
    }
}

fn pick<'a>(processes: &'a [Process], chance: &mut StdRng) -> Result<&'a Process> {
    let number = chance.random_range(0..processes.len().max(1));
    processes.get(number).context("there is no process to choose from")
}
