//! Requests at once, and clients that leave.

use anyhow::Result;
use futures_util::future::join_all;
use http::StatusCode;

use super::{ALIKE, Checked, Probe, Verdict, checked, quoted, right};
use crate::probe::effects::Effects;
use crate::probe::target::Answer;

impl Probe {
    /// Many requests with one new key at once, and the advice to those that come too early.
    pub(super) async fn race(&self, effects: &Effects) -> Result<Vec<Checked>> {
        let key = self.key("race");
        let before = effects.count(&self.target).await?;
        let racing = (0..self.at_once).map(|_| self.ask(&key));
        let answers: Vec<Answer> = join_all(racing).await.into_iter().collect::<Result<_>>()?;
        let last = self.settled(&key).await?;
        let counts = before.zip(effects.count(&self.target).await?);
        let mut all: Vec<&Answer> = answers.iter().collect();
        all.push(&last);
        let runs = effects.runs(counts, &all);
        let early: Vec<&Answer> = answers.iter().filter(|answer| !answer.is_success()).collect();
        let strange = early.iter().find(|answer| answer.status.as_u16() != self.rules.in_flight);
        let count = self.at_once;
        let (verdict, seen) = match runs {
            Some(runs @ 2..) => {
                (Verdict::Wrong, format!("{count} requests at once with one key ran {runs} times"))
            }
            Some(0) => (
                Verdict::Wrong,
                format!("none of {count} requests at once with one key ran: {}", last.status),
            ),
            _ if !last.is_success() => {
                (Verdict::Wrong, format!("after {count} requests at once, the key is stuck: {}", last.status))
            }
            _ if strange.is_some_and(|answer| answer.status.is_server_error()) => (
                Verdict::Weak,
                format!(
                    "some of {count} requests at once fail with {}",
                    strange.map_or(StatusCode::OK, |a| a.status)
                ),
            ),
            Some(_) => (Verdict::Right, format!("{count} requests at once with one key ran once")),
            None => (Verdict::Unknown, ALIKE.to_owned()),
        };
        let mut all = vec![checked("race", verdict, seen)];
        let told = early.iter().filter(|answer| answer.status.as_u16() == self.rules.in_flight).count();
        let advised =
            early.iter().filter(|answer| answer.headers.contains_key(http::header::RETRY_AFTER)).count();
        all.push(match (told, strange) {
            (0, None) => {
                right("in-flight", "repeats during the first attempt wait for its answer".to_owned())
            }
            (_, Some(answer)) => checked(
                "in-flight",
                Verdict::Weak,
                format!(
                    "a repeat during the first attempt is answered {} instead of {}",
                    answer.status, self.rules.in_flight
                ),
            ),
            (told, None) if advised >= told => right(
                "in-flight",
                format!(
                    "a repeat during the first attempt is answered {} with Retry-After",
                    self.rules.in_flight
                ),
            ),
            (_, None) => checked(
                "in-flight",
                Verdict::Weak,
                format!(
                    "the {} for a repeat during the first attempt has no Retry-After",
                    self.rules.in_flight
                ),
            ),
        });
        Ok(all)
    }

    /// Two different requests with one new key at once: at most one of them may succeed.
    pub(super) async fn race_of_two_bodies(&self) -> Result<Checked> {
        let key = quoted(&self.key("two-bodies"));
        let (one, other) = (self.with(&key, &self.body), self.with(&key, &self.other_body));
        let racing = (0..self.at_once).map(|n| self.target.ask(if n % 2 == 0 { &one } else { &other }));
        let answers: Vec<Answer> = join_all(racing).await.into_iter().collect::<Result<_>>()?;
        let of = |turn: usize| {
            answers.iter().enumerate().any(move |(n, answer)| n % 2 == turn && answer.is_success())
        };
        Ok(match (of(0), of(1)) {
            (true, true) => checked(
                "race-of-two",
                Verdict::Wrong,
                "two different requests at once with one key both succeed".to_owned(),
            ),
            _ => right(
                "race-of-two",
                "of two different requests at once with one key only one succeeds".to_owned(),
            ),
        })
    }

    /// A request whose client is gone before the answer, and its repeats.
    pub(super) async fn cut(&self, effects: &Effects) -> Result<Checked> {
        let key = self.key("cut");
        let before = effects.count(&self.target).await?;
        self.target.cut(&self.with(&quoted(&key), &self.body)).await?;
        let (one, other) = (self.settled(&key).await?, self.ask(&key).await?);
        let counts = before.zip(effects.count(&self.target).await?);
        let (verdict, seen) = match counts.map(|(before, after)| after.saturating_sub(before)) {
            Some(runs @ 2..) => {
                (Verdict::Wrong, format!("a request whose client left ran {runs} times with its repeats"))
            }
            _ if !one.is_success() => {
                (Verdict::Wrong, format!("a key whose client left is stuck: repeats are answered {}", one.status))
            }
            _ if !one.is_same(&other) => {
                (Verdict::Wrong, "two repeats after a client left have different answers".to_owned())
            }
            Some(_) => (Verdict::Right, "a request whose client left ran once, and its repeat got the answer".to_owned()),
            None => (
                Verdict::Unknown,
                "repeats after a client left get one answer; only a counter (--effects) shows whether it ran before"
                    .to_owned(),
            ),
        };
        Ok(checked("cut", verdict, seen))
    }
}
