//! The right to run, for now.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;

use crate::words::digest::hex;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::time::Timestamp;

/// The identity of an attempt: 128 random bits, made by the caller before it claims, and never used
/// by another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A new token from the operating system's randomness.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A token read from a store.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes of the token.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Shows the first digits only, because a token allows writing as the owner.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.0;
        write!(f, "Token({a:02x}{b:02x}…)")
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| hex).ok_or(TokenError)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The error for text that is not a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a token is 32 hexadecimal digits")]
pub struct TokenError;

/// A number that the store assigns with each grant. It rises for a key over takeover and release,
/// whatever the clock does, so that another system can order the effects that carry it: a system
/// that keeps the highest fence it has seen can refuse a lower one.
///
/// The fence is derived from the clock, so it also rises over a prune, unless the clock was set
/// back by more than the retention in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of a grant at `now` over a record that had `previous`: the clock in microseconds,
    /// or `previous` plus one if the clock stood still or went back.
    pub fn next(previous: Option<Self>, now: Timestamp) -> Self {
        let floor = previous.map_or(0, |fence| fence.0.saturating_add(1));
        Self(now.as_micros().max(floor))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to run the work of a key, for now.
///
/// A lease is plain data: dropping it releases nothing. Its holder writes as the owner until a
/// takeover, even after the deadline.
#[derive(Clone)]
pub struct Lease {
    key: Key,
    token: Token,
    fence: Fence,
    attempt: u32,
    deadline: Timestamp,
    alarm: Option<Arc<Alarm>>,
    /// The time for which the record is kept once it is settled, if the store has said so.
    retention: Option<Duration>,
    /// The intent of the claim, for the tier that passes the lease on.
    intent: Option<Intent>,
    /// The transactions in which the attempt can be completed, if the store has any.
    transactions: Option<Transactions>,
}

/// The transactions of users in which a store lets an attempt be completed: those of the Postgres
/// database in which this schema has the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transactions {
    schema: Arc<str>,
}

impl Transactions {
    /// The transactions of the database with this schema.
    pub fn in_schema(name: &str) -> Self {
        Self { schema: name.into() }
    }

    /// The name of the schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl Lease {
    /// A lease as a store grants it.
    pub fn new(key: Key, token: Token, fence: Fence, attempt: u32, deadline: Timestamp) -> Self {
        Self {
            key,
            token,
            fence,
            attempt,
            deadline,
            alarm: None,
            retention: None,
            intent: None,
            transactions: None,
        }
    }

    /// The key of the record.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The token of the attempt.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The number of this grant; pass it to any system that can refuse a lower one.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The number of the attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns `true` if an earlier attempt may have run.
    pub fn is_takeover(&self) -> bool {
        self.attempt > 1
    }

    /// The moment at which the lease ends by the store's clock, if it is not renewed.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Returns `true` if the lease can no longer be relied on; see [`Lease::lost`].
    pub fn is_lost(&self) -> bool {
        self.alarm.as_ref().is_some_and(|alarm| alarm.is_raised())
    }

    /// Waits until the lease can no longer be relied on: another attempt has taken over, or no
    /// renewal succeeded for the length of the lease. A lease that is not renewed in the background
    /// never ends this wait.
    pub async fn lost(&self) {
        match &self.alarm {
            Some(alarm) => alarm.wait().await,
            None => std::future::pending().await,
        }
    }

    /// The same lease of a record that is kept for `retention` once it is settled.
    #[must_use]
    pub fn with_retention(self, retention: Duration) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// The time for which the record is kept once it is settled, if the store has said so.
    pub fn retention(&self) -> Option<Duration> {
        self.retention
    }

    /// The same lease with the intent of its claim.
    pub(crate) fn with_intent(self, intent: Intent) -> Self {
        Self { intent: Some(intent), ..self }
    }

    /// The intent of the claim, if a tier has noted it.
    pub(crate) fn intent(&self) -> Option<&Intent> {
        self.intent.as_ref()
    }

    /// The same lease, of a store in whose transactions it can be completed.
    pub(crate) fn with_transactions(self, transactions: Option<Transactions>) -> Self {
        Self { transactions, ..self }
    }

    /// The transactions in which the attempt can be completed, if the store has any.
    pub fn transactions(&self) -> Option<&Transactions> {
        self.transactions.as_ref()
    }

    /// Gives the lease an alarm that tells its holders of the loss.
    pub(crate) fn set_alarm(&mut self) -> Arc<Alarm> {
        Arc::clone(self.alarm.insert(Arc::default()))
    }
}

/// The alarm that tells the holders of a lease of its loss.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    raised: AtomicBool,
    waiting: Notify,
}

impl Alarm {
    /// Raises the alarm; `true` if this is the first time.
    pub(crate) fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::SeqCst);
        self.waiting.notify_waiters();
        first
    }

    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        // The waiter is registered before the flag is read, so an alarm raised in between is not
        // missed.
        let raised = self.waiting.notified();
        if !self.is_raised() {
            raised.await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key)
            .field("token", &self.token)
            .field("fence", &self.fence)
            .field("attempt", &self.attempt)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_form() {
        let token = Token::random();
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_ne!(token, Token::random());
        for bad in ["", "12", &"g".repeat(32), &"+".repeat(32), "+0000000000000000000000000000000"] {
            assert_eq!(bad.parse::<Token>(), Err(TokenError), "{bad}");
        }
    }

    #[test]
    fn a_fence_rises_also_when_the_clock_goes_back() {
        let at = Timestamp::from_micros;
        assert_eq!(Fence::next(None, at(50)), Fence::new(50));
        assert_eq!(Fence::next(Some(Fence::new(50)), at(90)), Fence::new(90));
        assert_eq!(Fence::next(Some(Fence::new(50)), at(50)), Fence::new(51));
        assert_eq!(Fence::next(Some(Fence::new(50)), at(10)), Fence::new(51));
    }
}
