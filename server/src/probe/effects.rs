//! The number of times that the server has run a request.
//!
//! Two runs can be told apart if their answers differ, as most do by a new id or a time. Otherwise
//! the server has to tell the number of its effects.

use anyhow::{Context, Result};
use http::Uri;

use super::target::{Answer, Target};

/// The way to count runs.
pub(super) enum Effects {
    /// The answers of two runs differ.
    Answers,
    /// A URL tells the number.
    Counter(Uri),
    /// The answers of two runs are the same, and nothing counts them.
    Unseen,
}

impl Effects {
    /// The way that these answers to two different keys allow.
    pub(super) fn of(one: &Answer, other: &Answer, counter: Option<&Uri>) -> Self {
        match counter {
            Some(url) => Self::Counter(url.clone()),
            None if one.body == other.body => Self::Unseen,
            None => Self::Answers,
        }
    }

    /// Returns `true` if a second run cannot be seen.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(self, Self::Unseen)
    }

    /// The number of effects so far, if something counts them.
    pub(super) async fn count(&self, target: &Target) -> Result<Option<u64>> {
        let Self::Counter(url) = self else { return Ok(None) };
        let answer = target.get(url).await?;
        let text = String::from_utf8_lossy(&answer.body).trim().to_owned();
        text.parse().map(Some).with_context(|| format!("{url} answered {text:?}, which is not a number"))
    }

    /// The number of runs behind these answers to one key, given the numbers of effects before and
    /// after them; `None` if it cannot be told.
    pub(super) fn runs(&self, counts: Option<(u64, u64)>, answers: &[&Answer]) -> Option<usize> {
        match self {
            Self::Counter(_) => counts
                .map(|(before, after)| usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)),
            Self::Answers => {
                let mut bodies: Vec<_> =
                    answers.iter().filter(|answer| answer.is_success()).map(|answer| &answer.body).collect();
                bodies.sort();
                bodies.dedup();
                Some(bodies.len())
            }
            Self::Unseen => None,
        }
    }
}
