//! Memory for the bodies of requests and responses: one budget, with a share for each.
//!
//! Bytes are charged in steps as they arrive. The charge travels with the bytes
//! ([`Bytes::from_owner`]): wherever they are, for example in the queue of a connection, it is
//! returned when the last part of them is dropped.
//!
//! Requests never wait for room, and are refused without it: nothing has happened yet. Responses of
//! attempts that ran are never refused, and wait. Several responses that wait for each other would
//! wait for ever, so one at a time may exceed the share. Replays are refused without room, like
//! requests, and have at most half of the share of responses: they are free to ask for, and
//! responses of attempts must not wait for clients that do not take them.
//!
//! - `charge`: the steps that one body has been charged.
//! - `overdraft`: the permit by which one response exceeds the share.

mod charge;
mod overdraft;

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use self::charge::Share;
use self::overdraft::Overdraft;
use crate::engine::LetGo;
use crate::http::reply::rejection::Rejection;
use crate::words::key::Key;

pub(in crate::http) use self::charge::Charge;

/// The number of bytes in one step.
pub(in crate::http) const STEP: usize = 8 << 10;

/// A budget for the memory of bodies: half for requests, half for responses.
///
/// Clones share it. A layer with one
/// ([`IdempotencyLayer::with_memory`](crate::http::IdempotencyLayer::with_memory)) charges what it
/// reads, in steps of 8 KiB as the bytes arrive, and returns the charge when the handler or the
/// client has taken them:
///
/// - A request for which there is no room is refused with 503 `memory_exhausted` and `Retry-After`.
///   Nothing was claimed. Its head is charged with its body. A body that arrived in several pieces
///   is charged twice while they are joined, so a body that is larger than half of the share passes
///   only when there is no other.
/// - The response of an attempt that ran is never refused: reading it waits for room. A response
///   that could not be read in time is passed on, and recorded without its body.
/// - The charge of a response that is recorded is held until the store has taken it, even if the
///   client has the response already, or has left.
/// - A replay for which there is no room is refused like a request. Replays have at most half of
///   the share of responses. Replays of one key at the same time share their bytes.
/// - While more than three quarters of the share of requests are in use, no repeat waits for a
///   running attempt: each is answered 409 at once.
///
/// One response at a time may exceed the share, until there is room for it, and one replay that is
/// larger than the part for replays. So the largest use of memory is the budget and two responses
/// of the size that the policy records, and another for each thread, which is joined there.
#[derive(Clone)]
pub struct Memory(Arc<Shares>);

struct Shares {
    /// The steps for requests, and the number of them in use.
    request_steps: usize,
    requests: AtomicUsize,
    /// Notified when requests begin to be short of room.
    short: Notify,
    let_go: LetGo,
    reply_steps: usize,
    replies: Semaphore,
    overdraft: Overdraft,
    /// The most steps of replies that replays may use, and the number of them in use.
    replay_steps: usize,
    replays: AtomicUsize,
    /// The permit of one replay that is larger than that.
    large_replay: Semaphore,
    /// The large bodies that are being replayed.
    replayed: Mutex<HashMap<Key, Weak<Held>>>,
}

impl Memory {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let steps = (bytes / 2 / STEP).clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new_cyclic(|shares: &Weak<Shares>| Shares {
            let_go: Arc::new({
                let shares = shares.clone();
                move || Box::pin(shortage(shares.upgrade()))
            }),
            request_steps: steps,
            requests: AtomicUsize::new(0),
            short: Notify::new(),
            reply_steps: steps,
            replies: Semaphore::new(steps),
            overdraft: Overdraft::new(),
            replay_steps: steps.div_ceil(2),
            replays: AtomicUsize::new(0),
            large_replay: Semaphore::new(1),
            replayed: Mutex::default(),
        }))
    }

    /// The number of bytes in use by the bodies of requests.
    pub fn requests_in_use(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed) * STEP
    }

    /// The number of bytes in use by the bodies of responses, except for one that exceeds the share
    /// and one replay that exceeds its part.
    pub fn responses_in_use(&self) -> usize {
        (self.0.reply_steps - self.0.replies.available_permits()) * STEP
    }

    /// The largest body of a request for which there can be room.
    pub(in crate::http) fn largest_request(&self) -> usize {
        self.0.request_steps * STEP
    }

    pub(in crate::http) fn request(&self) -> Charge {
        Charge::new(&self.0, Share::Requests)
    }

    pub(in crate::http) fn reply(&self) -> Charge {
        Charge::new(&self.0, Share::Replies)
    }

    fn replay(&self) -> Charge {
        Charge::new(&self.0, Share::Replays)
    }

    /// The recorded body with a charge, which it shares with equal bodies of the same key.
    ///
    /// A replay does not wait for room. The first answer does, for this long.
    ///
    /// # Errors
    /// If there is no room.
    pub(in crate::http) async fn recorded(
        &self,
        key: &Key,
        body: Bytes,
        replayed: bool,
        longest: Duration,
    ) -> Result<Bytes, Rejection> {
        if !replayed {
            let mut charge = self.reply();
            let room = timeout(longest, pin!(charge.wait_for(body.len()))).await;
            // The request ran, so the answer must not claim that nothing happened.
            return room.map(|()| charge.hold(body)).map_err(|_| Rejection::OutcomePending);
        }
        let mut charge = self.replay();
        if body.len() <= STEP {
            return match charge.try_for(body.len()) {
                true => Ok(charge.hold(body)),
                false => Err(Rejection::MemoryExhausted),
            };
        }
        let held = self.together(key, body, charge).ok_or(Rejection::MemoryExhausted)?;
        Ok(Bytes::from_owner(Together(held)))
    }

    /// A large body that is being replayed: the existing one, or this one if there is room.
    fn together(&self, key: &Key, body: Bytes, mut charge: Charge) -> Option<Arc<Held>> {
        // The last response that shares a body locks the map, too: it is dropped after the lock.
        let other;
        let mut replayed = self.0.replayed();
        other = replayed.get(key).and_then(Weak::upgrade);
        if let Some(same) = other.as_ref().filter(|held| held.bytes == body) {
            return Some(Arc::clone(same));
        }
        if !charge.try_for(body.len()) && !charge.try_over(body.len()) {
            return None;
        }
        let held = Arc::new(Held { bytes: body, charge, key: Some(key.clone()) });
        replayed.insert(key.clone(), Arc::downgrade(&held));
        Some(held)
    }

    /// The signal that ends the waits of repeats while requests are short of room.
    pub(in crate::http) fn let_go(&self) -> LetGo {
        Arc::clone(&self.0.let_go)
    }
}

/// Completes when requests are short of room.
async fn shortage(shares: Option<Arc<Shares>>) {
    let Some(shares) = shares else { return };
    let mut short = pin!(shares.short.notified());
    // From here on a notification arrives; an earlier shortage is seen below.
    short.as_mut().enable();
    if !shares.is_short(shares.requests.load(Ordering::Relaxed)) {
        short.await;
    }
}

impl Shares {
    fn is_short(&self, used: usize) -> bool {
        used > self.request_steps - self.request_steps / 4
    }

    /// Takes steps for a request, if there are any.
    fn take(&self, steps: usize) -> bool {
        let before = self.requests.fetch_add(steps, Ordering::Relaxed);
        let now = before + steps;
        let fits = now <= self.request_steps;
        if !fits {
            self.requests.fetch_sub(steps, Ordering::Relaxed);
        }
        if !fits || self.is_short(now) && !self.is_short(before) {
            self.short.notify_waiters();
        }
        fits
    }

    fn take_reply(&self, steps: u32) -> bool {
        self.replies.try_acquire_many(steps).map(|permit| permit.forget()).is_ok()
    }

    fn give_back_reply(&self, steps: usize) {
        self.replies.add_permits(steps);
        self.overdraft.repay(&self.replies);
    }

    /// Takes steps for a replay, if there are any left for replays.
    fn take_replay(&self, steps: u32) -> bool {
        let count = steps as usize;
        let more = |used: usize| Some(used + count).filter(|used| *used <= self.replay_steps);
        if self.replays.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        let fits = self.take_reply(steps);
        if !fits {
            self.replays.fetch_sub(count, Ordering::Relaxed);
        }
        fits
    }

    fn give_back_replay(&self, steps: usize) {
        self.replays.fetch_sub(steps, Ordering::Relaxed);
        self.give_back_reply(steps);
    }

    fn replayed(&self) -> MutexGuard<'_, HashMap<Key, Weak<Held>>> {
        self.replayed.lock()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("requests_in_use", &self.requests_in_use())
            .field("responses_in_use", &self.responses_in_use())
            .finish_non_exhaustive()
    }
}

/// Bytes with their charge.
struct Held {
    bytes: Bytes,
    charge: Charge,
    /// The key under which other replays find it.
    key: Option<Key>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            let mut replayed = self.charge.shares().replayed();
            // Another body may have replaced it.
            if replayed.get(key).is_some_and(|held| held.strong_count() == 0) {
                replayed.remove(key);
            }
        }
    }
}

/// Bytes that several responses share.
struct Together(Arc<Held>);

impl AsRef<[u8]> for Together {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests;
