//! What one caller may use of the store.
//!
//! A caller is the realm and the principal of its keys, and its account is a few numbers. Accounts
//! are kept in two generations: an account that is used moves to the young one; when that is full,
//! it becomes the old one, and what was old is forgotten. So memory is bounded, and an account is
//! forgotten only after thousands of others were used since.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Refused, SOON};
use crate::words::key::{Key, Scope};

const SHARDS: usize = 16;
/// How many accounts a generation of a shard has. In all, 65,536 accounts of about 100 bytes are
/// kept, and four bytes for each key that was left held.
const GENERATION: usize = 2_048;
/// How long a key that was left held counts at least; twice as long at most. The process cannot
/// know when an operator settles it.
const HELD_COUNTS: Duration = Duration::from_secs(1_800);

/// What one caller may use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    unsettled: Option<u32>,
    new: Option<(u32, Duration)>,
}

impl Limits {
    pub(super) fn with_unsettled(self, limit: u32) -> Self {
        Self { unsettled: Some(limit), ..self }
    }

    pub(super) fn with_new(self, limit: u32, within: Duration) -> Self {
        Self { new: Some((limit, within)), ..self }
    }
}

/// The accounts of all callers.
pub(super) struct Quota {
    pub(super) limits: Limits,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    young: HashMap<u64, Account>,
    old: HashMap<u64, Account>,
}

/// What one caller has used.
struct Account {
    /// Claims and attempts under way, and those that settle in the background.
    under_way: u32,
    /// Keys that were left held, lately and before that, by their hashes: each counts once, however
    /// many attempts it had. There are no more of them than the limit.
    held: [Vec<u32>; 2],
    held_since: Instant,
    /// How many new keys it may use at once: it fills up to the limit within its time.
    new_left: f64,
    filled_at: Instant,
}

/// A charge for a claim. Dropped, it is taken back.
pub(super) struct Place {
    quota: Arc<Quota>,
    caller: u64,
    is_new: bool,
}

impl Quota {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Charges a caller for a claim of a key, a new one or not, if it may use that much.
    pub(super) fn enter(self: &Arc<Self>, caller: &Scope, is_new: bool) -> Result<Place, Refused> {
        let caller = self.hasher.hash_one(caller);
        self.with(caller, |account, limits| account.charge(limits, is_new, Instant::now()))?;
        Ok(Place { quota: Arc::clone(self), caller, is_new })
    }

    /// An attempt of this key has ended: it is settled, or left held.
    pub(super) fn ended(&self, key: &Key, is_settled: bool) {
        let hash = self.hash(key);
        self.with(self.hasher.hash_one(key.scope()), |account, limits| {
            account.under_way = account.under_way.saturating_sub(1);
            account.take_back(hash);
            if !is_settled && limits.unsettled.is_some() {
                account.forget_held(Instant::now());
                account.held[0].push(hash);
            }
        });
    }

    /// Two keys of one caller that have the same one count as one, which happens seldom enough.
    fn hash(&self, key: &Key) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn with<T>(&self, caller: u64, act: impl FnOnce(&mut Account, &Limits) -> T) -> T {
        // Nothing panics while the lock is held.
        let mut shard = self.shards[caller as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        act(shard.account(caller, &self.limits), &self.limits)
    }
}

impl Shard {
    fn account(&mut self, caller: u64, limits: &Limits) -> &mut Account {
        if !self.young.contains_key(&caller) && self.young.len() >= GENERATION {
            let forgotten = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            // There are no more of these than attempts.
            self.young.extend(forgotten.into_iter().filter(|(_, account)| account.under_way > 0));
        }
        let old = &mut self.old;
        self.young
            .entry(caller)
            .or_insert_with(|| old.remove(&caller).unwrap_or_else(|| Account::new(limits)))
    }
}

impl Account {
    fn new(limits: &Limits) -> Self {
        let (now, new_left) = (Instant::now(), limits.new.map_or(0.0, |(limit, _)| f64::from(limit)));
        Self { under_way: 0, held: [Vec::new(), Vec::new()], held_since: now, new_left, filled_at: now }
    }

    fn charge(&mut self, limits: &Limits, is_new: bool, now: Instant) -> Result<(), Refused> {
        self.forget_held(now);
        let unsettled = self.under_way as usize + self.held[0].len() + self.held[1].len();
        if limits.unsettled.is_some_and(|limit| unsettled >= limit as usize) {
            return Err(Refused::Unsettled(SOON));
        }
        if let Some((limit, within)) = limits.new {
            let each = within.as_secs_f64() / f64::from(limit.max(1));
            let filled = now.duration_since(self.filled_at).as_secs_f64() / each;
            (self.new_left, self.filled_at) = ((self.new_left + filled).min(limit.into()), now);
            if is_new && self.new_left < 1.0 {
                let missing = match limit {
                    0 => within,
                    _ => Duration::try_from_secs_f64((1.0 - self.new_left) * each).unwrap_or(within),
                };
                return Err(Refused::New(missing));
            }
            self.new_left -= f64::from(u8::from(is_new));
        }
        self.under_way += 1;
        Ok(())
    }

    fn forget_held(&mut self, now: Instant) {
        let passed = now.duration_since(self.held_since);
        if passed >= HELD_COUNTS {
            let lately = std::mem::take(&mut self.held[0]);
            self.held[1] = if passed < HELD_COUNTS * 2 { lately } else { Vec::new() };
            self.held_since = now;
        }
    }

    /// A key that was left held runs again, or is settled.
    fn take_back(&mut self, key: u32) {
        for held in &mut self.held {
            held.retain(|held| *held != key);
        }
    }
}

impl Place {
    /// The claim was granted: the caller stays charged until the attempt has ended. A key that was
    /// not new after all costs nothing of the new ones.
    pub(super) fn keep(mut self, key: &Key, is_new: bool) {
        // What follows is the drop, which takes back the rest.
        self.is_new &= !is_new;
        let hash = self.quota.hash(key);
        self.quota.with(self.caller, |account, _| {
            account.under_way += 1;
            account.take_back(hash);
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.quota.with(self.caller, |account, _| {
            account.under_way = account.under_way.saturating_sub(1);
            account.new_left += f64::from(u8::from(self.is_new));
        });
    }
}
