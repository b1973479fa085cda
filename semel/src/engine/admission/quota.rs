//! The quota of one caller: its unsettled keys, and its new keys within a time.
//!
//! A caller is the realm and the principal of its keys, and its account is a few numbers. Accounts
//! are kept in two generations. An account that is used moves to the young generation. When that is
//! full, it becomes the old generation, and the accounts that were in the old one are dropped. So
//! memory is bounded, and an account is dropped only after thousands of other accounts were used.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Refused, SOON};
use crate::words::key::{Key, Scope};

const SHARDS: usize = 16;
/// The number of accounts in one generation of a shard. In total there are 65,536 accounts of about
/// 100 bytes, plus four bytes for each key that was left held.
const GENERATION: usize = 2_048;
/// The shortest time for which a key that was left held counts; the longest is twice as long. The
/// process does not learn when an operator settles the key.
const HELD_COUNTS: Duration = Duration::from_secs(1_800);

/// The limits of one caller.
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

/// The use of one caller.
struct Account {
    /// The number of claims, and of attempts that are not settled, including those that are settled
    /// in the background.
    active: u32,
    /// The hashes of the keys that were left held, in this period and in the one before: a key
    /// counts once, even after several attempts. There are no more of them than the limit.
    held: [Vec<u32>; 2],
    held_since: Instant,
    /// The number of new keys that the caller may use at once. It is refilled up to the limit over
    /// the time of the limit.
    new_left: f64,
    filled_at: Instant,
}

/// The charge for a claim. Dropping it takes the charge back.
pub(super) struct Charge {
    quota: Arc<Quota>,
    caller: u64,
    is_new: bool,
}

impl Quota {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Charges a caller for a claim of a key that may be new, unless a limit is reached.
    pub(super) fn charge(self: &Arc<Self>, caller: &Scope, is_new: bool) -> Result<Charge, Refused> {
        let caller = self.hasher.hash_one(caller);
        self.with(caller, |account, limits| account.charge(limits, is_new, Instant::now()))?;
        Ok(Charge { quota: Arc::clone(self), caller, is_new })
    }

    /// Ends the charge for an attempt of this key, which may have left the key held.
    pub(super) fn settled(&self, key: &Key, is_held: bool) {
        let hash = self.hash(key);
        self.with(self.hasher.hash_one(key.scope()), |account, limits| {
            account.active = account.active.saturating_sub(1);
            account.take_back(hash);
            if is_held && limits.unsettled.is_some() {
                account.forget_held(Instant::now());
                account.held[0].push(hash);
            }
        });
    }

    /// A short hash of a key. Two keys of one caller with the same hash count as one, which is rare
    /// and harmless.
    fn hash(&self, key: &Key) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn with<T>(&self, caller: u64, act: impl FnOnce(&mut Account, &Limits) -> T) -> T {
        let mut shard = self.shards[caller as usize % SHARDS].lock();
        act(shard.account(caller, &self.limits), &self.limits)
    }
}

impl Shard {
    fn account(&mut self, caller: u64, limits: &Limits) -> &mut Account {
        if !self.young.contains_key(&caller) && self.young.len() >= GENERATION {
            let forgotten = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            // Accounts with active attempts are kept. There are no more of them than attempts.
            self.young.extend(forgotten.into_iter().filter(|(_, account)| account.active > 0));
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
        Self { active: 0, held: [Vec::new(), Vec::new()], held_since: now, new_left, filled_at: now }
    }

    fn charge(&mut self, limits: &Limits, is_new: bool, now: Instant) -> Result<(), Refused> {
        self.forget_held(now);
        let unsettled = self.active as usize + self.held[0].len() + self.held[1].len();
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
        self.active += 1;
        Ok(())
    }

    /// Drops the keys that were left held long ago.
    fn forget_held(&mut self, now: Instant) {
        let passed = now.duration_since(self.held_since);
        if passed >= HELD_COUNTS {
            let recent = std::mem::take(&mut self.held[0]);
            self.held[1] = if passed < HELD_COUNTS * 2 { recent } else { Vec::new() };
            self.held_since = now;
        }
    }

    /// Removes a key from those that were left held, because it runs again or is settled.
    fn take_back(&mut self, key: u32) {
        for held in &mut self.held {
            held.retain(|held| *held != key);
        }
    }
}

impl Charge {
    /// Keeps the charge of a granted claim until its attempt is settled. If the key turned out to
    /// have a record, the charge for a new key is taken back.
    pub(super) fn keep(mut self, key: &Key, is_new: bool) {
        // The drop at the end of this function takes back the charge of the claim, and the charge
        // for a new key if `self.is_new` is still set.
        self.is_new &= !is_new;
        let hash = self.quota.hash(key);
        self.quota.with(self.caller, |account, _| {
            account.active += 1;
            account.take_back(hash);
        });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota.with(self.caller, |account, _| {
            account.active = account.active.saturating_sub(1);
            account.new_left += f64::from(u8::from(self.is_new));
        });
    }
}
