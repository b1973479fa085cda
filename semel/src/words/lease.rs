//! The right to run, for now.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;

use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::time::Timestamp;

/// Who runs: 128 random bits, made by the caller for each attempt before it asks, and never used by another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A new one from the operating system's randomness.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// One that a store has kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first digits only: who knows a token may write as its owner.
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

/// Text that is not a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a token is 32 hexadecimal digits")]
pub struct TokenError;

/// A number that the store assigns with each grant. It rises for a key over takeover and release, whatever the
/// clock does, so an effect that carries it can be ordered: whoever has seen a higher one refuses a lower one.
///
/// It is made of the clock, so it also rises over a prune, unless the clock was set back by more than the retention
/// meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// From its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of a grant at `now` over a record that had `previous`: the clock in microseconds, or one more
    /// than before if the clock stood or went back.
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
/// It is plain data: dropping it releases nothing. Who holds it writes as the owner until a takeover, whatever
/// the time is.
#[derive(Clone)]
pub struct Lease {
    key: Key,
    token: Token,
    fence: Fence,
    attempt: u32,
    deadline: Timestamp,
    alarm: Option<Arc<Alarm>>,
    /// For how long the record is kept once it is settled, if the store has said so.
    retention: Option<Duration>,
    /// What was asked, for the tier that passes the lease on.
    intent: Option<Intent>,
}

impl Lease {
    /// A lease as a store grants it.
    pub fn new(key: Key, token: Token, fence: Fence, attempt: u32, deadline: Timestamp) -> Self {
        Self { key, token, fence, attempt, deadline, alarm: None, retention: None, intent: None }
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Who runs.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The number of this grant; pass it on to whatever can refuse a lower one.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// 1 for the first attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether an earlier attempt may have run before.
    pub fn is_takeover(&self) -> bool {
        self.attempt > 1
    }

    /// When the lease is over by the store's clock, if it is not renewed.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Whether the lease can no longer be counted upon; see [`Lease::lost`].
    pub fn is_lost(&self) -> bool {
        self.alarm.as_ref().is_some_and(|alarm| alarm.is_raised())
    }

    /// Waits until the lease can no longer be counted upon: another attempt has taken over, or no renewal got
    /// through for a whole lease. Never ends for a lease that nobody renews.
    pub async fn lost(&self) {
        match &self.alarm {
            Some(alarm) => alarm.wait().await,
            None => std::future::pending().await,
        }
    }

    /// The same lease of a record that is kept for this long once it is settled.
    #[must_use]
    pub fn with_retention(self, retention: Duration) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// For how long its record is kept once it is settled, if the store has said so.
    pub fn retention(&self) -> Option<Duration> {
        self.retention
    }

    /// The same lease with what was asked.
    pub(crate) fn with_intent(self, intent: Intent) -> Self {
        Self { intent: Some(intent), ..self }
    }

    /// What was asked, if a tier has noted it.
    pub(crate) fn intent(&self) -> Option<&Intent> {
        self.intent.as_ref()
    }

    /// Gives it an alarm that tells its holders of the loss.
    pub(crate) fn set_alarm(&mut self) -> Arc<Alarm> {
        Arc::clone(self.alarm.insert(Arc::default()))
    }
}

/// Tells the holders of a lease of its loss.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    raised: AtomicBool,
    waiting: Notify,
}

impl Alarm {
    /// Says whether it was raised for the first time.
    pub(crate) fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::SeqCst);
        self.waiting.notify_waiters();
        first
    }

    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        // It hears of everything from now on, so nothing is missed between the look and the wait.
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
