//! Repeats, other requests and other callers.

use anyhow::Result;
use http::StatusCode;

use super::{ALIKE, Checked, First, KEY, Probe, Verdict, checked, quoted, right};
use crate::probe::target::{Answer, Sent};

/// The headers by which servers mark a repeat.
const MARKS: [&str; 4] =
    ["idempotent-replayed", "idempotency-replayed", "x-idempotent-replayed", "idempotency-status"];
/// The headers that a client needs from a repeat as much as the body.
const NEEDED: [&str; 3] = ["content-type", "location", "etag"];

impl Probe {
    pub(super) async fn repeats(&self, first: &First) -> Result<Checked> {
        let before = first.effects.count(&self.target).await?;
        let again = self.ask(&first.key).await?;
        let counts = before.zip(first.effects.count(&self.target).await?);
        let ran = counts.map(|(before, after)| after > before);
        let (verdict, seen) = match (again.is_same(&first.answer), ran) {
            (_, Some(true)) => (Verdict::Wrong, "a repeat ran once more".to_owned()),
            (true, None) if first.effects.is_unseen() => (
                Verdict::Unknown,
                "all answers of this server are the same, so a second run cannot be seen; name a counter by --effects"
                    .to_owned(),
            ),
            (true, _) => (Verdict::Right, format!("a repeat is answered {} with the same body", again.status)),
            (false, _) if again.is_success() => {
                (Verdict::Wrong, "a repeat has another answer, as of a second run".to_owned())
            }
            (false, _) => (
                Verdict::Wrong,
                format!("a repeat is answered {} instead of {}", again.status, first.answer.status),
            ),
        };
        Ok(checked("repeat", verdict, seen))
    }

    /// The mark of a repeat, the echo of the key, and the headers.
    pub(super) async fn repeat_is_complete(&self, first: &First) -> Result<Vec<Checked>> {
        let again = self.ask(&first.key).await?;
        let mark = MARKS.iter().find(|name| again.headers.contains_key(**name));
        let is_fresh = mark.is_some_and(|name| first.answer.header(name) == again.header(name));
        let mut all = vec![match (mark, is_fresh) {
            (Some(name), false) => right("mark", format!("a repeat is marked by {name}")),
            (Some(name), true) => {
                checked("mark", Verdict::Wrong, format!("the first answer is marked by {name} like a repeat"))
            }
            (None, _) => checked(
                "mark",
                if self.rules.is_marked { Verdict::Wrong } else { Verdict::Weak },
                "a client cannot tell a repeat from a first answer: there is no Idempotent-Replayed",
            ),
        }];
        let lost: Vec<&str> = NEEDED
            .into_iter()
            .filter(|name| first.answer.headers.get(*name) != again.headers.get(*name))
            .collect();
        all.push(match lost.is_empty() {
            true => right("headers", "a repeat has the headers of the first answer"),
            false => checked(
                "headers",
                Verdict::Weak,
                format!("a repeat has another value, or none, of {}", lost.join(", ")),
            ),
        });
        let cookies = |answer: &Answer| answer.headers.contains_key(http::header::SET_COOKIE);
        all.push(match (cookies(&first.answer), cookies(&again)) {
            (_, true) => checked(
                "cookies",
                Verdict::Wrong,
                "a repeat sets a cookie: a recorded session may reach another client",
            ),
            (true, false) => right("cookies", "a cookie of the first answer is not repeated"),
            (false, false) => checked("cookies", Verdict::Unknown, "the first answer sets no cookie"),
        });
        if self.rules.is_echoed {
            let echoed = again.header(KEY.as_str()).is_some_and(|value| value.trim_matches('"') == first.key);
            all.push(match echoed {
                true => right("echo", "the answer repeats the key"),
                false => checked("echo", Verdict::Weak, "the answer does not repeat the key"),
            });
        }
        Ok(all)
    }

    pub(super) async fn other_request(&self, first: &First) -> Result<Checked> {
        let answer = self.target.ask(&self.with(&quoted(&first.key), &self.other_body)).await?;
        let (status, expected) = (answer.status.as_u16(), self.rules.mismatch);
        let (verdict, seen) = if answer.is_same(&first.answer) {
            (Verdict::Wrong, "another body with a used key gets the answer of the first".to_owned())
        } else if answer.is_success() {
            (Verdict::Wrong, "another body with a used key runs".to_owned())
        } else if contains(&answer.body, &first.answer.body) {
            (Verdict::Wrong, format!("the {status} for another body shows the first answer"))
        } else if status == expected {
            (Verdict::Right, format!("another body with a used key is refused with {status}"))
        } else if answer.status.is_client_error() {
            (
                Verdict::Weak,
                format!("another body with a used key is refused with {status} instead of {expected}"),
            )
        } else {
            (Verdict::Wrong, format!("another body with a used key is answered {status}"))
        };
        Ok(checked("other-request", verdict, seen))
    }

    pub(super) async fn still_repeats(&self, first: &First) -> Result<Checked> {
        let again = self.ask(&first.key).await?;
        Ok(match again.is_same(&first.answer) {
            true => right("after-refusal", "the key still has its answer after another body was refused"),
            false => checked(
                "after-refusal",
                Verdict::Wrong,
                format!("after another body came, the repeat is answered {} with another body", again.status),
            ),
        })
    }

    pub(super) async fn other_caller(&self, first: &First) -> Result<Checked> {
        let name = "other-caller";
        let Some(caller) = &self.other_caller else {
            let seen = "name the credentials of another caller by --other-caller".to_owned();
            return Ok(checked(name, Verdict::Unknown, seen));
        };
        let mut sent = self.with(&quoted(&first.key), &self.body);
        sent.headers.push(caller.clone());
        let answer = self.target.ask(&sent).await?;
        let (verdict, seen) = if answer.is_same(&first.answer) && !first.effects.is_unseen() {
            (Verdict::Wrong, "another caller gets the first one's answer".to_owned())
        } else if answer.is_same(&first.answer) {
            (Verdict::Unknown, ALIKE.to_owned())
        } else if answer.is_success() {
            (Verdict::Right, "the key of another caller is another key".to_owned())
        } else {
            (Verdict::Weak, format!("another caller with the same key is answered {}", answer.status))
        };
        Ok(checked(name, verdict, seen))
    }

    pub(super) async fn without_key(&self) -> Result<Checked> {
        let answer = self.target.ask(&Sent { headers: Vec::new(), body: self.body.clone() }).await?;
        let (verdict, seen) = match (self.rules.is_required, answer.status) {
            (true, StatusCode::BAD_REQUEST) => {
                (Verdict::Right, "a request without a key is refused with 400".to_owned())
            }
            (true, status) => {
                (Verdict::Weak, format!("a request without a key is answered {status} instead of 400"))
            }
            (false, status) => (Verdict::Right, format!("a request without a key is answered {status}")),
        };
        Ok(checked("no-key", verdict, seen))
    }
}

fn contains(long: &[u8], short: &[u8]) -> bool {
    !short.is_empty() && long.windows(short.len()).any(|part| part == short)
}
