//! The voids of claims that were given up without an answer, although a copy may have been applied.
//!
//! While a store does not answer, each request may leave such a claim. The engine keeps them in one
//! bounded list, and one task voids their tokens when no copy can arrive any more. While the list
//! is full, the engine sends no claims.
//!
//! A token is never voided if the process ends first. This costs no safety, because nothing runs
//! under the token: if a copy of its claim was applied, the key is running until its lease is over,
//! and then held or lost, as its policy says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::engine::patience::{CALL_LIMIT, IN_BACKGROUND, call};
use crate::protocol::answer::Void;
use crate::store::Store;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Token;
use crate::words::time::Timestamp;

/// The length at which the list is full. Claims that were in flight when it became full may exceed
/// it.
const MAX_VOIDS: usize = 10_000;
/// The largest number of concurrent voids.
const MAX_AT_A_TIME: usize = 64;
/// The longest pause between two checks of the list, and between two voids of one token.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time after which a void that was applied is sent once more. A copy of the claim that arrived in time
/// can be in its commit when the first void reads the record, and the first void then finds the
/// previous state; a store that does not commit within this time ends the connection.
const CONFIRM_AFTER: Duration = CALL_LIMIT;
/// The time without a check of the list after which its worker counts as dead: its runtime is
/// blocked, or has ended.
const SILENCE: Duration = CALL_LIMIT.saturating_add(Duration::from_secs(5));

/// A claim that was given up without an answer; its token is voided.
#[derive(Debug, Clone)]
pub(in crate::engine) struct UnansweredClaim {
    pub(in crate::engine) key: Key,
    pub(in crate::engine) token: Token,
    /// The moment from which the store refuses copies of the claim, by the store's clock.
    pub(in crate::engine) not_after: Timestamp,
    /// The moment of `not_after` by the clock of this process.
    pub(in crate::engine) due: Instant,
    /// The time for which the void is retried after a shutdown.
    pub(in crate::engine) patience: Duration,
    /// Set once the store has applied the void; what is left is to confirm it.
    pub(in crate::engine) voided: bool,
}

impl UnansweredClaim {
    /// The moment at which the void is given up, after a shutdown at this moment.
    fn given_up(&self, shutdown: Instant) -> Instant {
        self.due.max(shutdown) + self.patience
    }
}

/// The list of unanswered claims of an engine.
#[derive(Default)]
pub(in crate::engine) struct Voids {
    state: Mutex<State>,
    /// A copy of the length check: it is all that a claim reads here, so claims take no lock.
    is_full: AtomicBool,
}

#[derive(Default)]
struct State {
    unanswered: BTreeMap<Due, UnansweredClaim>,
    next_number: u64,
    /// The number of the worker, and the moment of its last check of the list.
    worker: Option<(u64, Instant)>,
}

/// The moment at which a token is voided next, and a number that makes it unique.
type Due = (Instant, u64);

impl State {
    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Removes the claims whose voids a shutdown no longer waits for. Returns the number of those
    /// that were not applied.
    fn give_up(&mut self, shutdown: Instant) -> usize {
        let now = Instant::now();
        self.unanswered.retain(|_, claim| !claim.voided);
        let before = self.unanswered.len();
        self.unanswered.retain(|(next, _), claim| {
            let end = claim.given_up(shutdown);
            *next <= end && now <= end + LONGEST_PAUSE
        });
        before - self.unanswered.len()
    }
}

/// The next step of the worker.
enum Step {
    End,
    Wait(Instant),
    Send(Vec<(Due, UnansweredClaim)>),
}

impl Voids {
    /// Returns `true` if no more claims should be sent.
    pub(in crate::engine) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn add(&self, claim: UnansweredClaim) {
        let mut state = self.state();
        let number = state.next_number();
        state.unanswered.insert((claim.due, number), claim);
        self.is_full.store(state.unanswered.len() >= MAX_VOIDS, Ordering::Relaxed);
    }

    /// A new worker for the list; `None` if there is one already.
    pub(in crate::engine) fn worker(self: &Arc<Self>) -> Option<Worker> {
        let mut state = self.state();
        if state.worker.is_some_and(|(_, seen)| seen.elapsed() < SILENCE) {
            return None;
        }
        let number = state.next_number();
        state.worker = Some((number, Instant::now()));
        Some(Worker { voids: Arc::clone(self), number, at_a_time: 1, failures: 0 })
    }

    /// Removes the claims whose voids are confirmed, and schedules the other voids again.
    fn answered(&self, answers: impl Iterator<Item = ((Due, UnansweredClaim), Result<Void, StoreError>)>) {
        let mut state = self.state();
        for ((due, mut claim), answer) in answers {
            state.unanswered.remove(&due);
            let pause = match answer {
                Ok(Void::Final) if claim.voided => continue,
                Ok(Void::Final) => {
                    claim.voided = true;
                    CONFIRM_AFTER
                }
                Ok(Void::Early(left)) => left,
                Err(error) if error.is_transient() => LONGEST_PAUSE,
                Err(error) => {
                    tracing::error!(%error, key = ?claim.key, "a claim could not be taken back; its key may stay in use");
                    continue;
                }
            };
            let (_, number) = due;
            state.unanswered.insert((Instant::now() + pause, number), claim);
        }
        self.is_full.store(state.unanswered.len() >= MAX_VOIDS, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The task that sends the voids.
pub(in crate::engine) struct Worker {
    voids: Arc<Voids>,
    number: u64,
    /// The number of concurrent voids: one while the store does not answer, and doubled with each
    /// answer.
    at_a_time: usize,
    /// The number of times in a row that the store did not answer.
    failures: u32,
}

impl Worker {
    /// Sends voids until the list is empty. After a shutdown, each void is given up when its
    /// patience is over.
    pub(in crate::engine) async fn run(mut self, store: Arc<dyn Store>, shutdown: CancellationToken) {
        let mut shut = None;
        loop {
            if shutdown.is_cancelled() {
                shut.get_or_insert_with(Instant::now);
            }
            match self.next_step(shut) {
                Step::End => return,
                Step::Wait(until) => tokio::select! {
                    biased;
                    () = shutdown.cancelled(), if shut.is_none() => {}
                    () = sleep_until(until) => {}
                },
                Step::Send(claims) => self.send(claims, &store).await,
            }
        }
    }

    fn next_step(&self, shut: Option<Instant>) -> Step {
        let (mut state, now) = (self.voids.state(), Instant::now());
        if state.worker.is_none_or(|(number, _)| number != self.number) {
            return Step::End;
        }
        state.worker = Some((self.number, now));
        let given_up = shut.map_or(0, |shut| state.give_up(shut));
        if given_up > 0 {
            tracing::error!(claims = given_up, "claims could not be taken back; their keys may stay in use");
        }
        let Some(((first, _), _)) = state.unanswered.first_key_value() else {
            state.worker = None;
            return Step::End;
        };
        if *first > now {
            return Step::Wait((*first).min(now + LONGEST_PAUSE));
        }
        let due = state.unanswered.iter().take_while(|((next, _), _)| *next <= now).take(self.at_a_time);
        Step::Send(due.map(|(due, claim)| (*due, claim.clone())).collect())
    }

    async fn send(&mut self, claims: Vec<(Due, UnansweredClaim)>, store: &Arc<dyn Store>) {
        let voids =
            claims.iter().map(|(_, claim)| call(store.void(&claim.key, claim.token, claim.not_after)));
        let answers = join_all(voids).await;
        let is_down = answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_transient));
        self.voids.answered(claims.into_iter().zip(answers));
        if is_down {
            sleep(IN_BACKGROUND.pause(self.failures)).await;
            (self.at_a_time, self.failures) = (1, self.failures.saturating_add(1));
        } else {
            (self.at_a_time, self.failures) = ((self.at_a_time * 2).min(MAX_AT_A_TIME), 0);
        }
    }
}
