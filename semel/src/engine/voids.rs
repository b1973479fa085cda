//! Claims that were given up while a copy of them may be applied: their tokens are voided.
//!
//! A store that does not answer leaves one for each request. So all are in one book, and one task
//! voids them when no copy can arrive any more. The book is bounded: while it is full, no claim is
//! sent.
//!
//! A token that is not voided, because the process ends first, costs no safety: nothing runs under
//! it. If a copy of its claim was applied, the key is running until its lease is over, and then
//! held or lost, as its policy says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::patience::{CALL_LIMIT, call};
use crate::protocol::answer::Void;
use crate::store::Store;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Token;
use crate::words::time::Timestamp;

/// How many tokens may wait to be voided. Those of claims that were under way when the last got its
/// place come on top.
const MAX_VOIDS: usize = 10_000;
/// How many are voided at a time, while the store answers.
const MAX_AT_A_TIME: usize = 64;
/// The longest pause between two looks into the book, and between two voids of the same token.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// A task that has not looked into the book for so long does not any more: its runtime stands
/// still, or it died.
const SILENCE: Duration = CALL_LIMIT.saturating_add(Duration::from_secs(5));

/// A token that is to be voided.
#[derive(Debug, Clone)]
pub(super) struct Stray {
    pub(super) key: Key,
    pub(super) token: Token,
    /// From when on the store refuses copies of its claim.
    pub(super) not_after: Timestamp,
    /// When that is, by the clock of this process.
    pub(super) due: Instant,
    /// How long the store is asked again after a shutdown.
    pub(super) patience: Duration,
}

impl Stray {
    /// When it is given up, if the shutdown began then.
    fn given_up(&self, shutdown: Instant) -> Instant {
        self.due.max(shutdown) + self.patience
    }
}

/// The book of an engine.
#[derive(Default)]
pub(super) struct Voids {
    book: Mutex<Book>,
    /// Every claim looks at this, and at nothing else here.
    is_full: AtomicBool,
}

#[derive(Default)]
struct Book {
    /// By when they are to be voided next, and by a number.
    strays: BTreeMap<Place, Stray>,
    next_number: u64,
    /// The number of the task that works on it, and when it was here last.
    worker: Option<(u64, Instant)>,
}

type Place = (Instant, u64);

impl Book {
    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Gives up what a shutdown does not wait for, and says how many those are.
    fn give_up(&mut self, shutdown: Instant) -> usize {
        let (before, now) = (self.strays.len(), Instant::now());
        self.strays.retain(|(next, _), stray| {
            let end = stray.given_up(shutdown);
            *next <= end && now <= end + LONGEST_PAUSE
        });
        before - self.strays.len()
    }
}

/// What the task does next.
enum Step {
    End,
    Wait(Instant),
    Send(Vec<(Place, Stray)>),
}

impl Voids {
    /// Whether no more claims should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self, stray: Stray) {
        let mut book = self.book();
        let number = book.next_number();
        book.strays.insert((stray.due, number), stray);
        self.is_full.store(book.strays.len() >= MAX_VOIDS, Ordering::Relaxed);
    }

    /// A task that is to work on the book, unless there is one.
    pub(super) fn worker(self: &Arc<Self>) -> Option<Worker> {
        let mut book = self.book();
        if book.worker.is_some_and(|(_, seen)| seen.elapsed() < SILENCE) {
            return None;
        }
        let number = book.next_number();
        book.worker = Some((number, Instant::now()));
        Some(Worker { voids: Arc::clone(self), number, at_a_time: 1, pause: FIRST_PAUSE })
    }

    /// Strikes out what is settled, and puts off what is to be voided again.
    fn answered(&self, answers: impl Iterator<Item = ((Place, Stray), Result<Void, StoreError>)>) {
        let mut book = self.book();
        for ((place, stray), answer) in answers {
            book.strays.remove(&place);
            let again = match answer {
                Ok(Void::Settled) => continue,
                Ok(Void::Early(left)) => left,
                Err(error) if error.is_transient() => LONGEST_PAUSE,
                Err(error) => {
                    tracing::error!(%error, key = ?stray.key, "a claim could not be taken back; its key may stay in use");
                    continue;
                }
            };
            book.strays.insert((Instant::now() + again, place.1), stray);
        }
        self.is_full.store(book.strays.len() >= MAX_VOIDS, Ordering::Relaxed);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while the lock is held.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that voids.
pub(super) struct Worker {
    voids: Arc<Voids>,
    number: u64,
    /// One while the store does not answer, then more each time.
    at_a_time: usize,
    pause: Duration,
}

impl Worker {
    /// Works until the book is empty. After a shutdown, what cannot be voided within its patience
    /// is given up.
    pub(super) async fn work(mut self, store: Arc<dyn Store>, shutdown: CancellationToken) {
        let mut shut = None;
        loop {
            if shutdown.is_cancelled() {
                shut.get_or_insert_with(Instant::now);
            }
            match self.look(shut) {
                Step::End => return,
                Step::Wait(until) => tokio::select! {
                    biased;
                    () = shutdown.cancelled(), if shut.is_none() => {}
                    () = sleep_until(until) => {}
                },
                Step::Send(strays) => self.send(strays, &store).await,
            }
        }
    }

    fn look(&self, shut: Option<Instant>) -> Step {
        let (mut book, now) = (self.voids.book(), Instant::now());
        if book.worker.is_none_or(|(number, _)| number != self.number) {
            return Step::End;
        }
        book.worker = Some((self.number, now));
        let given_up = shut.map_or(0, |shut| book.give_up(shut));
        if given_up > 0 {
            tracing::error!(claims = given_up, "claims could not be taken back; their keys may stay in use");
        }
        let Some(((first, _), _)) = book.strays.first_key_value() else {
            book.worker = None;
            return Step::End;
        };
        if *first > now {
            return Step::Wait((*first).min(now + LONGEST_PAUSE));
        }
        let due = book.strays.iter().take_while(|((next, _), _)| *next <= now).take(self.at_a_time);
        Step::Send(due.map(|(place, stray)| (*place, stray.clone())).collect())
    }

    async fn send(&mut self, strays: Vec<(Place, Stray)>, store: &Arc<dyn Store>) {
        let voids =
            strays.iter().map(|(_, stray)| call(store.void(&stray.key, stray.token, stray.not_after)));
        let answers = join_all(voids).await;
        let is_out = answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_transient));
        self.voids.answered(strays.into_iter().zip(answers));
        if is_out {
            sleep(self.pause).await;
            (self.at_a_time, self.pause) = (1, (self.pause * 2).min(LONGEST_PAUSE));
        } else {
            (self.at_a_time, self.pause) = ((self.at_a_time * 2).min(MAX_AT_A_TIME), FIRST_PAUSE);
        }
    }
}
