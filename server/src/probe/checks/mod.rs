//! The checks of a probe: the requests that each sends, and the verdict on the answers.
//!
//! - `repeats`: repeats, other requests and other callers.
//! - `keys`: which keys are one key.
//! - `races`: requests at once, and clients that leave.

mod repeats;
mod keys;
mod races;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use http::{HeaderName, HeaderValue};
use tokio::time::{Instant, sleep};

use super::ProbeArgs;
use super::dialect::Rules;
use super::effects::Effects;
use super::target::{Answer, Sent, Target};
use crate::config::Span;

/// The header that carries the key.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The pause between two repeats of a request that is in progress.
const PAUSE: Duration = Duration::from_millis(250);

/// The reason why a check cannot be judged.
const ALIKE: &str = "all answers of this server are the same; name a counter by --effects";

/// The judgement of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    /// A double effect, a stuck key, or another client's answer.
    Wrong,
    /// It costs clients, but no effect.
    Weak,
    /// It cannot be told.
    Unknown,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "wrong",
            Self::Weak => "weak",
            Self::Unknown => "unknown",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    /// The name, which does not change.
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// The behaviour of the server, in one sentence.
    pub(super) seen: String,
}

impl Checked {
    pub(super) fn is_wrong(&self) -> bool {
        self.verdict == Verdict::Wrong
    }
}

/// A series of requests to one server.
pub(super) struct Probe {
    target: Target,
    rules: Rules,
    body: String,
    other_body: String,
    other_caller: Option<(HeaderName, HeaderValue)>,
    counter: Option<http::Uri>,
    at_once: usize,
    /// How long a request may be in progress.
    patience: Duration,
    /// The beginning of all keys, which differs in each run.
    series: String,
}

/// The request that all checks begin with.
struct First {
    key: String,
    answer: Answer,
    effects: Effects,
}

impl Probe {
    pub(super) fn new(target: Target, args: &ProbeArgs) -> Self {
        let Span(patience) = args.timeout;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            target,
            rules: args.dialect.rules(),
            body: args.body.clone(),
            other_body: args.other_body.clone(),
            other_caller: args.other_caller.clone(),
            counter: args.effects.clone(),
            at_once: usize::from(args.at_once),
            patience,
            series: format!("semel-probe-{:x}-{:x}", since.as_micros(), std::process::id()),
        }
    }

    /// All results, in the order of the checks.
    ///
    /// # Errors
    /// If the server cannot be reached, or an ordinary request does not succeed.
    pub(super) async fn all(&self) -> Result<Vec<Checked>> {
        let first = self.first().await?;
        let mut all = vec![self.repeats(&first).await?];
        all.extend(self.repeat_is_complete(&first).await?);
        all.push(self.other_request(&first).await?);
        all.push(self.still_repeats(&first).await?);
        all.push(self.spelling(&first).await?);
        all.push(self.several_keys().await?);
        all.push(self.long_keys(&first).await?);
        all.push(self.letter_case().await?);
        all.extend(self.race(&first.effects).await?);
        all.push(self.race_of_two_bodies().await?);
        all.push(self.cut(&first.effects).await?);
        all.push(self.without_key().await?);
        all.push(self.other_caller(&first).await?);
        Ok(all)
    }

    fn key(&self, name: &str) -> String {
        format!("{}-{name}", self.series)
    }

    fn with(&self, key: &str, body: &str) -> Sent {
        let value = HeaderValue::from_str(key).unwrap_or_else(|_| HeaderValue::from_static("probe"));
        Sent { headers: vec![(KEY, value)], body: body.to_owned() }
    }

    async fn ask(&self, key: &str) -> Result<Answer> {
        self.target.ask(&self.with(&quoted(key), &self.body)).await
    }

    /// Two requests with different keys, which have to succeed.
    async fn first(&self) -> Result<First> {
        let key = self.key("first");
        let answer = self.ask(&key).await?;
        if !answer.is_success() {
            let body = String::from_utf8_lossy(&answer.body).chars().take(300).collect::<String>();
            bail!(
                "an ordinary request with a new key is answered {}, so nothing can be probed: {}; \
                 say by --header, --method and --body what the server expects",
                answer.status,
                body.trim()
            );
        }
        let other = self.ask(&self.key("another")).await?;
        let effects = Effects::of(&answer, &other, self.counter.as_ref());
        Ok(First { key, answer, effects })
    }

    /// The answer to a key once its first attempt is over, or the last one if that takes too long.
    async fn settled(&self, key: &str) -> Result<Answer> {
        let began = Instant::now();
        let mut answer = self.ask(key).await?;
        while answer.status.as_u16() == self.rules.in_flight && began.elapsed() < self.patience {
            sleep(PAUSE).await;
            answer = self.ask(key).await?;
        }
        Ok(answer)
    }
}

fn checked(name: &'static str, verdict: Verdict, seen: impl Into<String>) -> Checked {
    Checked { name, verdict, seen: seen.into() }
}

fn right(name: &'static str, seen: impl Into<String>) -> Checked {
    checked(name, Verdict::Right, seen)
}

/// A key as the draft writes it.
fn quoted(key: &str) -> String {
    format!("\"{key}\"")
}
