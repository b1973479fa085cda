//! The load: many callers with new errands, repeats, concurrent duplicates, equal keys of other
//! callers, and occasionally another intent under a used key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::client::{Client, Errand, Standing};
use crate::clock;
use crate::event::Answer;
use crate::work::Work;

/// The number of errands in progress at any time.
const WORKERS: u64 = 48;
const CALLERS: u32 = 8;

/// The behaviour of the callers in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The prefix of their keys.
    pub(crate) name: &'static str,
    /// The minimum duration of slow errands: longer than a lease, so that it has to be renewed, or
    /// than the retention.
    pub(crate) slow_ms: u64,
    /// The percentage of slow errands.
    pub(crate) slow_percent: u32,
    /// The time after which a client leaves an errand for the end.
    pub(crate) tries_for: Duration,
    /// The percentage of errands that are sent twice at the same time.
    pub(crate) double_percent: u32,
    /// The maximum number of repeats of an errand that has its answer.
    pub(crate) repeats: u32,
}

/// The callers of a round.
pub(crate) struct Load {
    client: Client,
    workers: JoinSet<Result<Vec<(Errand, Standing)>>>,
    seed: u64,
}

impl Load {
    pub(crate) fn start(client: &Client, style: Style, seed: u64) -> Self {
        let numbers = Arc::<AtomicU64>::default();
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let mut caller = Worker {
                client: client.clone(),
                numbers: Arc::clone(&numbers),
                style,
                chance: StdRng::seed_from_u64(seed ^ worker << 32),
                errands: Vec::new(),
            };
            workers.spawn(async move {
                while !caller.client.is_stopped() {
                    caller.turn().await?;
                }
                Ok(caller.errands)
            });
        }
        Self { client: client.clone(), workers, seed }
    }

    /// Ends the load, and requests every key once more: first the open ones, which have a deadline.
    /// Outcomes that expire are not requested again, because they may no longer exist.
    pub(crate) async fn settle(mut self, until: u64, outcomes_expire: bool) -> Result<()> {
        self.client.stop();
        let mut errands = Vec::new();
        while let Some(ended) = self.workers.join_next().await {
            errands.extend(ended.context("a caller panicked")??);
        }
        errands.retain(|(_, standing)| !outcomes_expire || *standing != Standing::Settled);
        errands.sort_by_key(|(_, standing)| *standing != Standing::Open);
        let (errands, next) = (Arc::new(errands), Arc::<AtomicU64>::default());
        let mut workers = JoinSet::new();
        // Keys that expire must not wait behind keys that stay held.
        let askers = if outcomes_expire { errands.len() as u64 } else { WORKERS };
        for worker in 0..askers {
            let (client, errands, next) = (self.client.clone(), Arc::clone(&errands), Arc::clone(&next));
            let mut chance = StdRng::seed_from_u64(self.seed ^ !worker);
            workers.spawn(async move {
                loop {
                    let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed))?;
                    let Some((errand, _)) = errands.get(number) else { return anyhow::Ok(()) };
                    client.run(errand, true, until, &mut chance).await?;
                }
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended.context("a caller panicked")??;
        }
        Ok(())
    }
}

struct Worker {
    client: Client,
    numbers: Arc<AtomicU64>,
    style: Style,
    chance: StdRng,
    errands: Vec<(Errand, Standing)>,
}

impl Worker {
    async fn turn(&mut self) -> Result<()> {
        let errand = self.errand();
        let mut others = Vec::new();
        if self.chance.random_range(0..100) < self.style.double_percent {
            others.push(errand.clone());
        }
        if self.chance.random_bool(0.2) {
            let caller = format!("{}-too", errand.caller);
            others.push(Errand { caller, work: errand.work.clone() });
        }
        if self.chance.random_bool(0.05) {
            let work = Work { intent: 1, ..errand.work.clone() };
            others.push(Errand { caller: errand.caller.clone(), work });
        }
        let until = clock::now() + self.style.tries_for.as_micros() as u64;
        let mut at_once = JoinSet::new();
        for other in others {
            let (client, mut chance) = (self.client.clone(), StdRng::seed_from_u64(self.chance.random()));
            at_once.spawn(async move {
                let standing = client.run(&other, false, until, &mut chance).await?;
                anyhow::Ok((other, standing))
            });
        }
        let standing = self.client.run(&errand, false, until, &mut self.chance).await?;
        if standing == Standing::Settled {
            for _ in 0..self.chance.random_range(0..=self.style.repeats) {
                let answer = self.client.send(&errand, false, &mut self.chance).await?;
                if answer == Answer::Lost || self.client.is_stopped() {
                    break;
                }
            }
        }
        while let Some(ended) = at_once.join_next().await {
            let (other, standing) = ended.context("a caller panicked")??;
            // A concurrent duplicate is the same errand; all other errands are also requested at
            // the end.
            if (&other.caller, &other.work) != (&errand.caller, &errand.work) {
                self.errands.push((other, standing));
            }
        }
        self.errands.push((errand, standing));
        Ok(())
    }

    fn errand(&mut self) -> Errand {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let dice = self.chance.random_range(0..100);
        let work_ms = match dice {
            // One half before the effect, and one half after it.
            _ if dice < self.style.slow_percent => self.style.slow_ms / 2,
            _ if dice < self.style.slow_percent + 3 => self.style.slow_ms / 6,
            _ => self.chance.random_range(0..3),
        };
        let turned_away_first = self.chance.random_bool(0.03);
        let work =
            Work { key: format!("{}-{number}", self.style.name), intent: 0, work_ms, turned_away_first };
        Errand { caller: format!("caller-{}", self.chance.random_range(0..CALLERS)), work }
    }
}
