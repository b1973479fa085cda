//! The cost of the verbs over a store without cost: the protocol itself, in memory.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use semel::store::{Ack, Ask, Claim, Owner, Terms};
use semel::{Intent, MemoryStore, Outcome, Scope, Store};

use crate::report::{Report, progress};
use crate::rounds::{Rounds, grouped, number};
use crate::table::Table;

/// The amount to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Operations of each thread in each round
    #[arg(long, default_value_t = 200_000)]
    operations: u32,

    /// Rounds; one and two threads take turns, and the median counts
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// The measured load.
#[derive(Clone, Copy)]
enum Load {
    ClaimComplete,
    Replay,
}

impl Args {
    /// The settings for the page of all benchmarks.
    pub(crate) fn of_page(long: bool) -> Self {
        Self { operations: 200_000, rounds: if long { 9 } else { 5 } }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    measure(args)?.finish()
}

/// Measures both loads on one thread and on two, in turns.
pub(crate) fn measure(args: &Args) -> Result<Report> {
    let mut report = Report::new("The protocol itself, in memory");
    let each = grouped(f64::from(args.operations));
    let title = format!("operations a second in memory, {each} a thread, {} rounds", args.rounds);
    let mut table = Table::new(title, ["", "1 thread", "µs each", "2 threads", "2 vs 1"]);
    for (load, name) in [(Load::ClaimComplete, "claim + complete, new keys"), (Load::Replay, "replay")] {
        progress(format!("memory: {name}"));
        let (mut one, mut two) = (Rounds::default(), Rounds::default());
        for _ in 0..args.rounds {
            one.push(rate(load, 1, args.operations)?);
            two.push(rate(load, 2, args.operations)?);
        }
        let each = number(1e6 / one.median());
        let ratio = format!("{} x", number(two.over(&one).median()));
        table.row([name.to_owned(), one.show(), each, two.show(), ratio]);
    }
    report.table(table);
    Ok(report)
}

/// Operations per second of all threads together, on a store of their own.
fn rate(load: Load, threads: u32, operations: u32) -> Result<f64> {
    let store = MemoryStore::with_capacity(threads as usize * operations as usize + 1);
    let asks: Vec<Vec<Ask>> =
        (0..threads).map(|thread| asks(&store, thread, operations)).collect::<Result<_>>()?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = asks
            .iter()
            .map(|asks| {
                let store = store.clone();
                scope.spawn(move || work(&store, load, asks))
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    Ok(f64::from(threads * operations) / started.elapsed().as_secs_f64())
}

/// The claims are created in advance, because a server gets them from its requests.
fn asks(store: &MemoryStore, thread: u32, operations: u32) -> Result<Vec<Ask>> {
    let scope = Scope::new("bench")?.with_principal(&format!("thread {thread}"))?;
    let intent = Intent::of("charge", "invoice-42", "200 bytes of it")?;
    let not_after = store.memory_clock().now().after(Terms::RELEASED_RETENTION);
    let ask = |n: u32| {
        Ok(Ask::new(scope.key(&format!("8e03978e-40d5-43dd-bc93-{n:012}"))?, intent.clone(), not_after)
            .with_owner(Owner::new("bench")))
    };
    (0..operations).map(ask).collect()
}

fn work(store: &MemoryStore, load: Load, asks: &[Ask]) -> Result<()> {
    let outcome = Outcome::new(201)?.with_body("x".repeat(200))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().context("could not start a runtime")?;
    runtime.block_on(async {
        match load {
            Load::ClaimComplete => {
                for ask in asks {
                    claim_and_complete(store, ask, &outcome).await?;
                }
            }
            Load::Replay => {
                claim_and_complete(store, &asks[0], &outcome).await?;
                for ask in asks {
                    let repeat = ask.clone().with_key(asks[0].key.clone());
                    if !matches!(store.claim(&repeat).await?, Claim::Done(_)) {
                        bail!("a repeat was not replayed");
                    }
                }
            }
        }
        Ok(())
    })
}

async fn claim_and_complete(store: &MemoryStore, ask: &Ask, outcome: &Outcome) -> Result<()> {
    let Claim::Granted(lease) = store.claim(ask).await? else { bail!("a new key was not granted") };
    match store.complete(&lease, outcome).await? {
        Ack::Applied => Ok(()),
        other => bail!("a complete was {other:?}"),
    }
}
