//! Memory for the bodies of requests and responses: one budget, with a share for each.
//!
//! Bytes are charged in steps as they arrive. The charge travels with the bytes ([`Bytes::from_owner`]): wherever they
//! are, in the queue of a connection say, it is given back when the last part of them is dropped.
//!
//! Requests never wait for room, and are refused without it: nothing has happened yet. Responses of attempts that ran are
//! never refused, and wait. Several that wait for each other would wait for ever, so one at a time may go over the share.

mod overdraft;

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};

use self::overdraft::{Loan, Overdraft};
use crate::engine::LetGo;
use crate::http::reply::rejection::Rejection;
use crate::runtime::timer::within;
use crate::words::key::Key;

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
        Charge { shares: Arc::clone(&self.0), share: Share::Requests, steps: 0, overdrawn: false, loan: None }
    }

    pub(in crate::http) fn reply(&self) -> Charge {
        Charge { shares: Arc::clone(&self.0), share: Share::Replies, steps: 0, overdrawn: false, loan: None }
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

enum Share {
    Requests,
    Replies,
}

/// What a body has been charged. It is given back when this is dropped.
pub(in crate::http) struct Charge {
    shares: Arc<Shares>,
    share: Share,
    steps: usize,
    /// Whether this is a response that was let over the share.
    overdrawn: bool,
    /// What it is over the share, once it is known.
    loan: Option<Arc<Loan>>,
}

impl Charge {
    /// How many steps are missing for so many bytes.
    fn missing(&self, bytes: usize) -> u32 {
        let missing = bytes.div_ceil(STEP).saturating_sub(self.steps);
        // Bodies are far smaller than what this cannot count.
        u32::try_from(missing).unwrap_or(u32::MAX)
    }

    /// Charges so many bytes in all; `false`, and nothing more, if there is no room.
    pub(in crate::http) fn try_for(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing == 0 || self.overdrawn {
            return true;
        }
        let taken = match self.share {
            Share::Requests => self.shares.take(missing as usize),
            Share::Replies => {
                self.shares.replies.try_acquire_many(missing).map(|permit| permit.forget()).is_ok()
            }
        };
        if taken {
            self.steps += missing as usize;
        }
        taken
    }

    /// Charges so many bytes in all and the same again, while pieces are joined, or else all that there ever is.
    pub(in crate::http) fn try_for_joining(&mut self, bytes: usize, joined: usize) -> bool {
        let all = match self.share {
            Share::Requests => self.shares.request_steps,
            Share::Replies => self.shares.reply_steps,
        };
        self.try_for((bytes + joined).min(all * STEP).max(bytes))
    }

    /// Gives back what is charged beyond so many bytes.
    pub(in crate::http) fn keep(&mut self, bytes: usize) {
        let extra = self.steps.saturating_sub(bytes.div_ceil(STEP));
        self.steps -= extra;
        self.give_back(extra);
    }

    /// Whether there is never room for so many bytes of a response within the share.
    fn is_over_all(&self, bytes: usize) -> bool {
        bytes.div_ceil(STEP) > self.shares.reply_steps
    }

    /// Lets a response go over the share now that is larger than all of it.
    fn try_over(&mut self, bytes: usize) -> bool {
        self.overdrawn = self.is_over_all(bytes) && self.shares.overdraft.try_enter();
        self.overdrawn
    }

    /// Charges so many bytes of a response in all, as soon as there is room.
    pub(in crate::http) async fn wait_for(&mut self, bytes: usize) {
        if self.try_for(bytes) {
            return;
        }
        let missing = self.missing(bytes);
        let Shares { replies, overdraft, .. } = &*self.shares;
        tokio::select! {
            biased;
            // It is never closed. One that waits for more than there is would keep everything from the others.
            permit = replies.acquire_many(missing), if !self.is_over_all(bytes) => {
                permit.into_iter().for_each(|permit| permit.forget());
                self.steps += missing as usize;
            }
            () = overdraft.enter() => self.overdrawn = true,
        }
    }

    /// The response has this size: if it is over the share, it is moved into it as soon as there is room.
    fn known(&mut self, bytes: usize) {
        if self.overdrawn {
            self.loan = Some(self.shares.overdraft.lend(self.missing(bytes)));
            self.shares.overdraft.repay(&self.shares.replies);
        }
    }

    /// The bytes with their charge.
    pub(in crate::http) fn hold(mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() && self.steps == 0 {
            return bytes;
        }
        self.known(bytes.len());
        Bytes::from_owner(Held { bytes, charge: self, key: None })
    }

    fn give_back(&self, steps: usize) {
        match self.share {
            _ if steps == 0 => {}
            Share::Requests => {
                self.shares.requests.fetch_sub(steps, Ordering::Relaxed);
            }
            Share::Replies => {
                self.shares.replies.add_permits(steps);
                self.shares.overdraft.repay(&self.shares.replies);
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.overdrawn {
            self.steps += self.shares.overdraft.leave(self.loan.as_deref());
        }
        self.give_back(self.steps);
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
            let mut replayed = self.charge.shares.replayed();
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
