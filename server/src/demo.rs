//! A payment service in one process, asked in every way that goes wrong elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use comfy_table::{Cell, ContentArrangement, Table, presets};
use semel::{
    Change, Failure, Inspect, Intent, Key, MemoryStore, Once, Outcome, Policy, Ran, RunError, Store,
};
use serde::{Deserialize, Serialize};

/// How many repeats are sent at the same time.
const AT_ONCE: usize = 32;
/// What the table may take of a terminal.
const WIDTH: u16 = 110;

/// What a client asks for.
#[derive(Clone, Serialize)]
struct Payment {
    to: &'static str,
    cents: u32,
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    number: usize,
}

/// The place where a second run would cost money.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Vec<u32>>>);

impl Bank {
    fn charge(&self, cents: u32) -> Receipt {
        let mut charges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        charges.push(cents);
        Receipt { number: charges.len() }
    }

    fn charges(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The service: an engine over a store, and the bank behind it.
#[derive(Clone)]
struct Service {
    store: MemoryStore,
    once: Once,
    bank: Bank,
}

impl Service {
    fn new() -> Result<Self> {
        let store = MemoryStore::new();
        let policy = Policy::hold().with_wait(Duration::from_secs(5))?;
        Ok(Self { once: Once::new(store.clone()).with_policy(policy), store, bank: Bank::default() })
    }

    /// A request with this key. `crashes` lets the handler panic after the bank was asked.
    async fn pay(
        &self,
        key: &str,
        payment: &Payment,
        crashes: bool,
    ) -> Result<Result<Ran<Receipt>, RunError>> {
        let key = Key::new("demo", key)?;
        let intent = Intent::of("POST /payments", payment.to, payment)?;
        let (bank, cents) = (self.bank.clone(), payment.cents);
        let handler = move |_lease| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let receipt = bank.charge(cents);
            assert!(!crashes, "out of memory");
            Ok::<_, Failure>(receipt)
        };
        Ok(self.once.run(&key, &intent, handler).await)
    }
}

/// The story, told as a table.
struct Story {
    service: Service,
    table: Table,
    requests: usize,
}

impl Story {
    fn new() -> Result<Self> {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH)
            .set_header(["what was asked", "what ran", "what was answered"]);
        Ok(Self { service: Service::new()?, table, requests: 0 })
    }

    fn tell(&mut self, asked: &str, charges_before: usize, answered: String) {
        let ran = match self.service.bank.charges() - charges_before {
            0 => "nothing".to_owned(),
            1 => "1 charge".to_owned(),
            many => format!("{many} charges"),
        };
        self.table.add_row([Cell::new(asked), Cell::new(ran), Cell::new(answered)]);
    }

    async fn one(&mut self, asked: &str, key: &str, cents: u32, crashes: bool) -> Result<()> {
        let before = self.service.bank.charges();
        let answer = self.service.pay(key, &Payment { to: "ann", cents }, crashes).await?;
        self.requests += 1;
        self.tell(asked, before, describe(&answer));
        Ok(())
    }

    async fn many(&mut self, asked: &str, key: &'static str, cents: u32) -> Result<()> {
        let before = self.service.bank.charges();
        let sent: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let service = self.service.clone();
                tokio::spawn(async move { service.pay(key, &Payment { to: "bob", cents }, false).await })
            })
            .collect();
        let mut answers = Vec::new();
        for request in sent {
            answers.push(request.await.context("a request of the demo panicked")??);
        }
        self.requests += AT_ONCE;
        let first = answers.iter().flatten().find(|ran| !ran.replayed).context("no request ran")?;
        let same = answers.iter().flatten().filter(|ran| ran.value == first.value).count();
        self.tell(asked, before, format!("{same} times: receipt {}", first.value.number));
        Ok(())
    }

    /// What an operator does who has asked the bank.
    async fn resolve(&mut self, asked: &str, key: &str) -> Result<()> {
        let before = self.service.bank.charges();
        let key = Key::new("demo", key)?;
        let held = self.service.store.find(&key).await?.context("the held key is there")?;
        let outcome = Outcome::json(&Receipt { number: before })?;
        let change =
            self.service.store.resolve(&key, held.fence, &outcome, "seen on the bank's statement").await?;
        ensure!(change == Change::Applied, "the held key was not resolved: {change:?}");
        self.tell(asked, before, "the receipt is recorded".to_owned());
        Ok(())
    }
}

fn describe(answer: &Result<Ran<Receipt>, RunError>) -> String {
    match answer {
        Ok(Ran { value, replayed: false }) => format!("receipt {}", value.number),
        Ok(Ran { value, replayed: true }) => format!("receipt {}, from the record", value.number),
        Err(error) => match std::error::Error::source(error) {
            Some(cause) => format!("refused: {error}: {cause}"),
            None => format!("refused: {error}"),
        },
    }
}

/// Tells the story and checks its end: as many charges as there were payments.
pub(crate) async fn run(_exit: bool) -> Result<()> {
    // One handler panics on purpose; the table tells of it.
    std::panic::set_hook(Box::new(|_| {}));
    let mut story = Story::new()?;
    story.one("pay 10.00 under the key A", "A", 1_000, false).await?;
    story.one("the same once more", "A", 1_000, false).await?;
    story.one("pay 99.00 under the key A", "A", 9_900, false).await?;
    story.many("pay 20.00 under the key B, 32 times at once", "B", 2_000).await?;
    story
        .one("pay 30.00 under the key C; the handler crashes after it asked the bank", "C", 3_000, true)
        .await?;
    story.one("the same once more", "C", 3_000, false).await?;
    story.resolve("an operator finds the charge at the bank and resolves the key", "C").await?;
    story.one("the same once more", "C", 3_000, false).await?;

    println!("A payment service and a bank, in this process. The policy is `hold`: nothing runs twice.\n");
    println!("{}\n", story.table);
    println!("{} requests, 3 payments, {} charges.", story.requests, story.service.bank.charges());
    ensure!(story.service.bank.charges() == 3, "every payment should have been charged once");
    Ok(())
}
