//! The engine: the runs, their records, and the answers.
//!
//! - `runs`: the start of work, and the recording of its outcome.
//! - `names`: keys and intents from plain values, and work that borrows from its caller.
//! - `leases`, `waits`: renewals, and waiting for a running attempt.
//! - `limits`: the limits in front of a claim.
//! - `pruning`: the removal of expired records.
//! - `faults`, `voids`: stores that do not answer.
//! - `runtimes`: runtimes that end.

mod faults;
mod leases;
mod limits;
mod names;
mod pruning;
mod runs;
mod runtimes;
mod voids;
mod waits;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::store::{Ask, Claim, Owner, Phase, Record, Takeover, Terms};
use semel::{AfterCrash, Failure, Intent, Key, Lease, MemoryStore, Once, Policy, Store};
use testkit::gates::{Gate, Through};

const LEASE: Duration = Duration::from_secs(10);

fn key() -> Key {
    Key::new("tests", "key").expect("a valid key")
}

fn intent() -> Intent {
    Intent::of("charge", "invoice-42", &1_000).expect("a valid intent")
}

fn with_lease(policy: Policy) -> Policy {
    policy.with_lease(LEASE)
}

/// An engine behind a gate, under `hold`.
fn engine() -> (Gate, Once) {
    let gate = Gate::new();
    let once = Once::new(Through(gate.clone())).with_policy(with_lease(Policy::hold()));
    (gate, once)
}

/// Work on its way.
type Running = Pin<Box<dyn Future<Output = Result<u32, Failure>> + Send>>;

/// A counter of runs.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>);

impl Counter {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Work that takes this long and gives the number of its run.
    fn work(
        &self,
        takes: Duration,
    ) -> impl FnOnce(Lease) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Failure>> + Send>> + use<>
    {
        let counter = self.clone();
        move |_lease| {
            Box::pin(async move {
                let number = counter.0.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::time::sleep(takes).await;
                Ok(number)
            })
        }
    }

    /// Work that is done at once.
    fn quick(
        &self,
    ) -> impl FnOnce(Lease) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Failure>> + Send>> + use<>
    {
        self.work(Duration::ZERO)
    }
}

async fn record(gate: &Gate) -> Option<Record> {
    gate.store.find(&key()).await.expect("memory answers")
}

async fn phase(gate: &Gate) -> Option<Phase> {
    let now = gate.store.memory_clock().now();
    record(gate).await.map(|record| record.phase(now))
}

/// Another process that takes the key over, at once if the lease is over. If it is lost in turn,
/// the next attempt may run.
async fn take_over(store: &MemoryStore) -> Lease {
    let found = store.find(&key()).await.expect("memory answers");
    let ask = Ask::new(key(), intent(), store.memory_clock().now().after(LEASE))
        .with_owner(Owner::new("another process"))
        .with_terms(Terms::DEFAULT.with_after_crash(AfterCrash::Retry))
        .with_takeover(found.map_or(Takeover::Never, |record| Takeover::Of(record.fence)));
    match store.claim(&ask).await.expect("memory answers") {
        Claim::Granted(lease) => lease,
        other => panic!("not granted but {other:?}"),
    }
}

/// Work that ends only after another process has taken over.
fn loses_its_lease(gate: &Gate) -> impl FnOnce(Lease) -> Running + use<> {
    let store = gate.store.clone();
    move |_lease| {
        Box::pin(async move {
            store.memory_clock().advance(LEASE);
            let _winner = take_over(&store).await;
            Ok(1)
        })
    }
}
