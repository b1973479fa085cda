//! Many callers that continue through every failure, and a ledger of their answers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use semel::store::{Claim, Token};
use semel::{Failure, Intent, Key, Once, Outcome, Policy, RunError, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::claims::{ask, ask_at};
use crate::until::until;

/// The number of callers. They compete in pairs for the same keys, under tokens of their own.
const CALLERS: usize = 32;
/// The number of callers that use the engine.
const ENGINE_CALLERS: usize = 8;

/// The answers to callers, and their work.
#[derive(Default)]
struct Ledger {
    /// The tokens under which each key was granted.
    grants: HashMap<String, HashSet<Token>>,
    /// The number of times that the work of each key was done.
    effects: HashMap<String, usize>,
    /// The outcomes that were acknowledged.
    outcomes: HashMap<String, Outcome>,
}

/// Running callers.
pub struct Load {
    shared: Arc<Shared>,
    callers: JoinSet<()>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    /// The number of keys that each caller has completed.
    finished: Vec<AtomicUsize>,
    failures: AtomicUsize,
    stop: AtomicBool,
}

impl Load {
    /// Starts the callers.
    pub fn start(store: &(impl Store + Clone)) -> Self {
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            finished: (0..CALLERS).map(|_| AtomicUsize::new(0)).collect(),
            failures: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let policy = Policy::hold().with_patience(Duration::from_millis(500));
        let once = Once::new(store.clone()).with_policy(policy);
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let (shared, store, once) = (Arc::clone(&shared), store.clone(), once.clone());
            callers.spawn(async move {
                for turn in 0.. {
                    if shared.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = format!("key-{}-{turn}", number / 2);
                    match number < ENGINE_CALLERS {
                        true => shared.run(&once, &key).await,
                        false => shared.claim_and_complete(&store, &key).await,
                    }
                    shared.finished[number].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { shared, callers }
    }

    /// The number of errors that callers got.
    pub fn failures(&self) -> usize {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Waits until every caller has made progress since this call.
    pub async fn goes_on(&mut self) {
        let Self { shared, callers } = self;
        let finished = || shared.finished.iter().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<usize> = finished().collect();
        until("every caller gets further", async || {
            // None of them ends by itself, unless by a panic.
            if let Some(ended) = callers.try_join_next() {
                ended.unwrap();
            }
            // Two are required, because the first may have been answered before and not been
            // counted yet.
            finished().zip(&before).all(|(now, before)| now >= before + 2)
        })
        .await;
    }

    /// Ends the load, and compares the answers to callers with the state of this store, as another
    /// process sees it.
    pub async fn judge(self, store: &impl Store) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.callers.join_all().await;
        let Ledger { grants, effects, outcomes } = std::mem::take(&mut *self.shared.ledger());
        let twice: Vec<_> = grants.iter().filter(|(_, tokens)| tokens.len() > 1).collect();
        assert!(twice.is_empty(), "granted to two: {twice:?}");
        let twice: Vec<_> = effects.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "run twice: {twice:?}");
        assert!(outcomes.len() >= CALLERS / 2, "{} outcomes are no load", outcomes.len());
        assert!(outcomes.keys().all(|key| effects.contains_key(key)));

        let now = ask(store, "key").await;
        let replays = outcomes.iter().map(async |(key, outcome)| {
            let ask = now.clone().with_key(Key::new("tests", key).unwrap()).with_token(Token::random());
            let claim = store.claim(&ask).await.unwrap();
            assert!(matches!(&claim, Claim::Done(done) if done.outcome == *outcome), "{key}: {claim:?}");
        });
        join_all(replays).await;
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    /// Counts the work of a key, and makes an outcome that is unique to the attempt.
    fn work(&self, key: &str) -> Outcome {
        *self.ledger().effects.entry(key.to_owned()).or_default() += 1;
        Outcome::json(&format!("{key} by {}", Token::random())).unwrap()
    }

    /// Checks that every caller of a key gets the same outcome.
    fn acknowledged(&self, key: &str, outcome: Outcome) {
        let told = self.ledger().outcomes.entry(key.to_owned()).or_insert_with(|| outcome.clone()).clone();
        assert_eq!(told, outcome, "{key} has two outcomes");
    }

    async fn claim_and_complete(&self, store: &impl Store, name: &str) {
        let now = self.persist(|| store.now()).await;
        let ask = ask_at(now, name);
        match self.persist(|| store.claim(&ask)).await {
            Claim::Granted(lease) => {
                self.ledger().grants.entry(name.to_owned()).or_default().insert(lease.token());
                let outcome = self.work(name);
                let ack = self.persist(|| store.complete(&lease, &outcome)).await;
                assert!(ack.stands(), "{name}: {ack:?}");
                self.acknowledged(name, outcome);
            }
            Claim::Done(done) => self.acknowledged(name, done.outcome),
            Claim::Running { .. } => {}
            other => panic!("{name}: {other:?}"),
        }
    }

    async fn run(self: &Arc<Self>, once: &Once, name: &str) {
        let key = Key::new("tests", name).unwrap();
        let intent = Intent::of("charge", "", &1).unwrap();
        loop {
            let (shared, name) = (Arc::clone(self), name.to_owned());
            let work = |_lease| async move { Ok::<_, Failure>(shared.work(&name)) };
            let error = match once.run_outcome(&key, &intent, work).await {
                Ok(ran) => return self.acknowledged(key.value(), ran.value),
                Err(error) => error,
            };
            match &error {
                RunError::Pending { .. } => return,
                RunError::Unavailable(error) | RunError::OutcomePending(error) if error.is_transient() => {}
                _ => panic!("{name}: {error:?}", name = key.value()),
            }
            self.failed().await;
        }
    }

    /// Repeats a call until it is answered. Every error in between has to be transient.
    async fn persist<T, F: Future<Output = Result<T, StoreError>>>(&self, ask: impl Fn() -> F) -> T {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            self.failed().await;
        }
    }

    async fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
    }
}
