//! Memory for the bodies of requests and responses: one budget, with a share for each.
//!
//! Bytes are charged in steps as they arrive. The charge travels with the bytes ([`Bytes::from_owner`]): wherever they
//! are, in the queue of a connection say, it is given back when the last part of them is dropped.
//!
//! Requests never wait for room, and are refused without it: nothing has happened yet. Responses of attempts that ran are
//! never refused, and wait. Several that wait for each other would wait for ever, so one at a time may go over the share.

mod charge;
mod overdraft;

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};

use self::charge::Share;
use self::overdraft::Overdraft;
use crate::engine::LetGo;
use crate::http::reply::rejection::Rejection;
use crate::runtime::timer::within;
use crate::words::key::Key;

pub(in crate::http) use self::charge::Charge;

/// How much is charged at a time.
pub(in crate::http) const STEP: usize = 8 << 10;

/// A budget of memory for bodies that are held: half for requests, half for responses.
///
/// Clones share it. A layer with one ([`IdempotencyLayer::with_memory`](crate::http::IdempotencyLayer::with_memory)) charges what it
/// reads, in steps of 8 KiB as the bytes arrive, and gives it back when the handler or the client has taken them:
///
/// - A request for which there is no room is refused with 503 `memory_exhausted` and `Retry-After`. Nothing was claimed. Its
///   head is charged with its body. A body that arrived in several pieces is charged twice while they are joined, so one
///   that is larger than half of the share passes only when there is no other.
/// - The response of an attempt that ran is never refused: reading it waits for room. One that could not be read in time is
///   passed on, and recorded without its body.
/// - A replay for which there is no room is refused as a request is. Replays of one key at the same time share their bytes.
/// - While more than three quarters of the share of requests are in use, no repeat waits for a running attempt: it is
///   answered 409 at once.
///
/// One response at a time may go over the share, until there is room for it. So the most that is held is the budget and
/// one response of the size that the policy records, and another for each thread, which is joined there.
#[derive(Clone)]
pub struct Memory(Arc<Shares>);

struct Shares {
    /// Steps for requests, and how many of them are in use.
    request_steps: usize,
    requests: AtomicUsize,
    /// Told when requests begin to be short of room.
    short: Notify,
    let_go: LetGo,
    reply_steps: usize,
    replies: Semaphore,
    overdraft: Overdraft,
    /// Large bodies that are being replayed.
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
            replayed: Mutex::default(),
        }))
    }

    /// How many bytes the bodies of requests take up now.
    pub fn requests_in_use(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed) * STEP
    }

    /// How many bytes the bodies of responses take up now, except for one that is over the share.
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

    /// The recorded body as one that is charged, together with others of the same key that are the same.
    ///
    /// A replay is not waited for. The first answer is, for this long.
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
        let mut charge = self.reply();
        if !replayed {
            let room = within(longest, pin!(charge.wait_for(body.len()))).await;
            // It ran, so this is not the answer of a request that did nothing.
            return room.map(|()| charge.hold(body)).ok_or(Rejection::OutcomePending);
        }
        if body.len() <= STEP {
            return match charge.try_for(body.len()) {
                true => Ok(charge.hold(body)),
                false => Err(Rejection::MemoryExhausted),
            };
        }
        let held = self.together(key, body, charge).ok_or(Rejection::MemoryExhausted)?;
        Ok(Bytes::from_owner(Together(held)))
    }

    /// A large body that is being replayed: one that is there already, or this one if there is room.
    fn together(&self, key: &Key, body: Bytes, mut charge: Charge) -> Option<Arc<Held>> {
        // The last of those who share a body locks the book, too: it goes after the lock.
        let other;
        let mut replayed = self.0.replayed();
        other = replayed.get(key).and_then(Weak::upgrade);
        if let Some(same) = other.as_ref().filter(|held| held.bytes == body) {
            return Some(Arc::clone(same));
        }
        if !charge.try_for(body.len()) && !charge.try_over(body.len()) {
            return None;
        }
        charge.known(body.len());
        let held = Arc::new(Held { bytes: body, charge, key: Some(key.clone()) });
        replayed.insert(key.clone(), Arc::downgrade(&held));
        Some(held)
    }

    /// What lets repeats go that wait while requests are short of room.
    pub(in crate::http) fn let_go(&self) -> LetGo {
        Arc::clone(&self.0.let_go)
    }
}

/// Comes to its end when requests are short of room.
async fn shortage(shares: Option<Arc<Shares>>) {
    let Some(shares) = shares else { return };
    let mut short = pin!(shares.short.notified());
    // From now on it is told; before that it is seen.
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

    fn replayed(&self) -> MutexGuard<'_, HashMap<Key, Weak<Held>>> {
        // Nothing panics while the lock is held.
        self.replayed.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Under which others find it.
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
            // Another may have taken its place.
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
