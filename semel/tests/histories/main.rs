//! Random histories: many requests over a few keys, through processes that crash, a network that
//! loses, delays and repeats messages, and a store whose rows are locked for the duration of a
//! commit, judged by a ledger that is independent of the store.
//!
//! The time is virtual and the random generator seeded: the same seed gives the same history.
//! `SEMEL_SEED=n` replays one history and prints it, `SEMEL_HISTORIES=n` runs another number of
//! them than the default.
//!
//! - `chaos`: the network between a process and the store.
//! - `locks`: the store with slow commits.
//! - `hot`: the hot store of two tiers.
//! - `ledger`: the record of events, and the properties.

mod chaos;
mod hot;
mod ledger;
mod locks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::{
    AfterCrash, Failure, Held, Intent, Key, Lease, MemoryStore, Once, Outcome, Policy, Reconciled, Store,
};
use testkit::gates::Through;
use testkit::stores::tiered::hot_first;
use tokio::time::{sleep, timeout};

use chaos::{Dice, Process};
use hot::Forgetful;
use ledger::{Event, Ledger, Refusal};
use locks::Locking;

/// The number of histories for each policy, over one store.
const HISTORIES: u64 = 50_000;
/// The number of histories for each policy over two tiers, and with a hook.
const FEWER_HISTORIES: u64 = 15_000;
/// A third of the lease is a whole number of milliseconds, like every other duration: timers round
/// up to those, and a history with fractions would differ from run to run.
const LEASE: Duration = Duration::from_millis(1_200);
const KEYS: usize = 2;

fn policy(after_crash: AfterCrash, dice: &Dice) -> Policy {
    let policy = match after_crash {
        AfterCrash::Retry => Policy::retry(),
        AfterCrash::Transactional => Policy::transactional(),
        _ => Policy::hold(),
    };
    let wait = if dice.percent(40) { dice.millis(5_000) } else { Duration::ZERO };
    policy.with_lease(LEASE).with_patience(Duration::from_millis(500)).with_wait(wait)
}

fn key(number: usize) -> Key {
    Key::new("histories", &number.to_string()).expect("a number is a valid key")
}

fn intent(number: u8) -> Intent {
    Intent::of("run", "", &number).expect("a number has a fingerprint")
}

/// The behaviour of one request when it runs, which is decided in advance.
#[derive(Clone)]
struct Work {
    key: usize,
    process: Process,
    ledger: Ledger,
    before: Duration,
    after: Duration,
    roll: u64,
    transactional: bool,
}

impl Work {
    fn new(key: usize, process: &Process, ledger: &Ledger, dice: &Dice, transactional: bool) -> Self {
        Self {
            key,
            process: process.clone(),
            ledger: ledger.clone(),
            before: dice.millis(1_500),
            after: dice.millis(1_500),
            roll: dice.roll(100),
            transactional,
        }
    }

    async fn run(self, lease: Lease) -> Result<u64, Failure> {
        let fence = lease.fence().get();
        self.process.alive().await;
        self.ledger.write(self.key, Event::Started { fence });
        sleep(self.before).await;
        self.process.alive().await;
        match self.roll {
            0..15 => {
                self.ledger.write(self.key, Event::Nothing);
                return Err(Failure::nothing_happened("refused by the other side"));
            }
            15..20 if !self.transactional => {
                self.ledger.write(self.key, Event::Unknown);
                return Err(Failure::unknown("no answer from the other side"));
            }
            _ => {}
        }
        if self.transactional {
            // One step for effect and outcome, as in one transaction of a database.
            let outcome = Outcome::json(&fence)?;
            if !self.process.store.complete(&lease, &outcome).await?.stands() {
                return Err(Failure::nothing_happened("rolled back"));
            }
        }
        self.ledger.write(self.key, Event::Effect { fence });
        sleep(self.after).await;
        self.process.alive().await;
        match self.roll {
            20..25 if !self.transactional => {
                self.ledger.write(self.key, Event::Unknown);
                Err(Failure::unknown("the other side did it, but its answer was lost"))
            }
            25..30 if self.transactional => Err(Failure::unknown("the answer to the commit was lost")),
            30..35 => {
                self.ledger.write(self.key, Event::Unknown);
                panic!("the work panics");
            }
            _ => Ok(fence),
        }
    }
}

/// Moves the store's clock, forward and back, so that leases are over early or late.
async fn step_the_clock(store: MemoryStore, dice: Dice) {
    for _ in 0..3 {
        sleep(dice.millis(4_000)).await;
        let by = dice.millis(3_000);
        if dice.percent(50) {
            store.memory_clock().advance(by);
        } else {
            store.memory_clock().set_back(by);
        }
    }
}

/// The stores between the processes of a history and the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tiers {
    /// One store.
    One,
    /// A shared hot store that loses entries, in front of the durable one.
    Two,
}

/// The setting of a history.
#[derive(Debug, Clone, Copy)]
struct Setting {
    after_crash: AfterCrash,
    tiers: Tiers,
    /// Set if a hook reports lost attempts that have not started. Then the clock is not moved: an
    /// attempt whose lease is over too early, by a step of the clock, would start after the hook
    /// was asked.
    hook: bool,
}

impl Setting {
    const fn of(after_crash: AfterCrash, tiers: Tiers) -> Self {
        Self { after_crash, tiers, hook: false }
    }
}

/// A hook that knows the events, as the place of the effect would: an attempt that has not started
/// did nothing.
fn hook(ledger: &Ledger) -> impl Fn(Key, Intent, Held) -> std::future::Ready<Reconciled> + use<> {
    let ledger = ledger.clone();
    move |_, _, held| {
        let started = ledger.has_started(held.fence.get());
        std::future::ready(if started { Reconciled::Unknown } else { Reconciled::DidNotHappen })
    }
}

/// Runs one history, and returns the ledger and the violation, if any.
async fn history(seed: u64, setting: Setting) -> (Ledger, Option<String>) {
    let Setting { after_crash, tiers, .. } = setting;
    let (dice, ledger) = (Dice::new(seed), Ledger::default());
    let healed = Arc::new(AtomicBool::new(false));
    let store = Locking::new(&dice, &healed);
    let hot = Forgetful::new(&dice);
    let engine = |process: &Process| {
        let durable = Through(process.clone());
        let once = match tiers {
            Tiers::One => Once::new(durable),
            Tiers::Two => Once::new(hot_first(hot.seen_by(process), durable)),
        };
        let once = once.with_policy(policy(after_crash, &dice));
        if setting.hook { once.with_reconcile(hook(&ledger)) } else { once }
    };
    let processes: Vec<(Process, Once)> = (0..=dice.roll(3))
        .map(|_| {
            let process = Process::new(&store, &dice, &healed);
            let once = engine(&process);
            (process, once)
        })
        .collect();

    let mut clients = Vec::new();
    for _ in 0..2 + dice.roll(6) {
        let (process, once) = &processes[dice.roll(processes.len() as u64) as usize];
        let number = dice.roll(KEYS as u64) as usize;
        let asked = u8::from(dice.percent(10));
        let work = Work::new(number, process, &ledger, &dice, after_crash == AfterCrash::Transactional);
        let (begins, patience) = (dice.millis(4_000), dice.millis(60_000));
        let (once, ledger) = (once.clone(), ledger.clone());
        clients.push(tokio::spawn(async move {
            sleep(begins).await;
            let (key, intent) = (key(number), intent(asked));
            // A client that runs out of patience disconnects at any point.
            let run = timeout(patience, once.run(&key, &intent, |lease| work.run(lease))).await;
            match run {
                Ok(Ok(ran)) => {
                    let told = Event::Told { value: ran.value, intent: asked, replayed: ran.replayed };
                    ledger.write(number, told);
                }
                Ok(Err(error)) => ledger.write(number, Event::Refused(Refusal::from(&error))),
                Err(_) => {}
            }
        }));
    }
    if dice.percent(30) && !setting.hook {
        tokio::spawn(step_the_clock(store.memory.clone(), dice.clone()));
    }
    for (process, _) in &processes {
        if dice.percent(25) {
            sleep(dice.millis(3_000)).await;
            process.crash();
            (0..KEYS).for_each(|key| ledger.write(key, Event::Unknown));
        }
    }

    sleep(Duration::from_secs(30)).await;
    healed.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    for (process, once) in &processes {
        if !process.has_crashed() && timeout(Duration::from_secs(60), once.drain()).await.is_err() {
            return (ledger, Some("background work does not end after everything was well again".into()));
        }
    }
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    let last = Process::new(&store, &dice, &healed);
    let once = engine(&last);
    for number in 0..KEYS {
        let work = Work {
            roll: 99,
            ..Work::new(number, &last, &ledger, &dice, after_crash == AfterCrash::Transactional)
        };
        let ran = once.run(&key(number), &intent(0), |lease| work.run(lease)).await;
        ledger.write(number, Event::Last(ran.map(|ran| ran.value).map_err(|error| Refusal::from(&error))));
    }
    for number in 0..KEYS {
        let record = store.find(&key(number)).await.expect("memory answers");
        let recorded = record.as_ref().map(|record| (&record.state, record.fence.get()));
        if let Some(wrong) = ledger.violation(number, after_crash, setting.hook, recorded) {
            return (ledger, Some(wrong));
        }
    }
    (ledger, None)
}

fn run(seed: u64, setting: Setting) -> (Ledger, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O can always be made").block_on(history(seed, setting))
}

fn number_from(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Silences the panics of the work, which are intended and occur thousands of times.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref() != Some(&"the work panics") {
            eprintln!("{info}");
        }
    }));
}

fn histories(setting: Setting) {
    quiet();
    if let Some(seed) = number_from("SEMEL_SEED") {
        let (ledger, violation) = run(seed, setting);
        ledger.all().iter().for_each(|(key, event)| eprintln!("key {key}: {event:?}"));
        assert_eq!(violation, None, "seed {seed}, {setting:?}");
        return;
    }
    let count = if setting.tiers == Tiers::One && !setting.hook { HISTORIES } else { FEWER_HISTORIES };
    for seed in 0..number_from("SEMEL_HISTORIES").unwrap_or(count) {
        let (_, violation) = run(seed, setting);
        assert_eq!(violation, None, "replay with SEMEL_SEED={seed}, {setting:?}");
    }
}

/// The events, with the fences numbered: fences are made of the time and differ from run to run.
fn numbered(ledger: &Ledger) -> Vec<(usize, Event)> {
    let mut fences = Vec::new();
    let mut number = |fence: u64| {
        let known = fences.iter().position(|f| *f == fence);
        known.unwrap_or_else(|| {
            fences.push(fence);
            fences.len() - 1
        }) as u64
    };
    let mut event = |event| match event {
        Event::Started { fence } => Event::Started { fence: number(fence) },
        Event::Effect { fence } => Event::Effect { fence: number(fence) },
        Event::Told { value, intent, replayed } => Event::Told { value: number(value), intent, replayed },
        Event::Last(Ok(value)) => Event::Last(Ok(number(value))),
        other => other,
    };
    ledger.all().into_iter().map(|(key, happened)| (key, event(happened))).collect()
}

#[test]
fn the_same_seed_gives_the_same_history() {
    quiet();
    for (seed, tiers) in (0..500).zip([Tiers::One, Tiers::Two].into_iter().cycle()) {
        let [one, other] = [(); 2].map(|()| numbered(&run(seed, Setting::of(AfterCrash::Retry, tiers)).0));
        assert_eq!(one, other, "seed {seed}, {tiers:?}");
    }
}

#[test]
fn hold_keeps_its_promises_in_random_histories() {
    histories(Setting::of(AfterCrash::Hold, Tiers::One));
}

#[test]
fn retry_keeps_its_promises_in_random_histories() {
    histories(Setting::of(AfterCrash::Retry, Tiers::One));
}

#[test]
fn transactional_keeps_its_promises_in_random_histories() {
    histories(Setting::of(AfterCrash::Transactional, Tiers::One));
}

#[test]
fn hold_keeps_its_promises_in_random_histories_of_two_tiers() {
    histories(Setting::of(AfterCrash::Hold, Tiers::Two));
}

#[test]
fn retry_keeps_its_promises_in_random_histories_of_two_tiers() {
    histories(Setting::of(AfterCrash::Retry, Tiers::Two));
}

#[test]
fn transactional_keeps_its_promises_in_random_histories_of_two_tiers() {
    histories(Setting::of(AfterCrash::Transactional, Tiers::Two));
}

#[test]
fn hold_keeps_its_promises_in_random_histories_with_a_hook() {
    histories(Setting { hook: true, ..Setting::of(AfterCrash::Hold, Tiers::One) });
}
