//! Which keys are one key.

use anyhow::Result;

use super::{ALIKE, Checked, First, Probe, Verdict, checked, quoted, right};

impl Probe {
    /// The key in quotes, as the draft writes it, and bare, as most clients send it.
    pub(super) async fn spelling(&self, first: &First) -> Result<Checked> {
        let bare = self.target.ask(&self.with(&first.key, &self.body)).await?;
        let (verdict, seen) = if bare.is_success() && first.effects.is_unseen() {
            (Verdict::Unknown, ALIKE.to_owned())
        } else if bare.is_same(&first.answer) {
            (Verdict::Right, "a key in quotes and the bare key are one key".to_owned())
        } else if bare.is_success() {
            (Verdict::Wrong, "a key in quotes and the bare key are two keys: both ran".to_owned())
        } else {
            (Verdict::Weak, format!("the bare key is answered {}, the key in quotes is not", bare.status))
        };
        Ok(checked("quotes", verdict, seen))
    }

    pub(super) async fn several_keys(&self) -> Result<Checked> {
        let mut sent = self.with(&quoted(&self.key("one-of-two")), &self.body);
        sent.headers.extend(self.with(&quoted(&self.key("two-of-two")), "").headers);
        let answer = self.target.ask(&sent).await?;
        Ok(match answer.is_success() {
            true => checked(
                "two-keys",
                Verdict::Wrong,
                "a request with two different keys runs: a proxy and the server may read different ones",
            ),
            false => right(
                "two-keys",
                format!("a request with two different keys is refused with {}", answer.status),
            ),
        })
    }

    /// Two long keys that differ at their ends.
    pub(super) async fn long_keys(&self, first: &First) -> Result<Checked> {
        let start = format!("{}-{}", self.key("long"), "x".repeat(300));
        let one = self.ask(&format!("{start}1")).await?;
        let other = quoted(&format!("{start}2"));
        let other = self.target.ask(&self.with(&other, &self.other_body)).await?;
        let (verdict, seen) = match (one.is_success(), other.is_success()) {
            (true, true) if one.is_same(&other) && first.effects.is_unseen() => {
                (Verdict::Unknown, ALIKE.to_owned())
            }
            (true, true) if one.is_same(&other) => (
                Verdict::Wrong,
                "a long key is cut off: another one that begins like it gets its answer".to_owned(),
            ),
            (true, true) => {
                (Verdict::Right, "long keys that differ at their ends are different keys".to_owned())
            }
            (true, false) => (
                Verdict::Wrong,
                format!(
                    "a long key is cut off: another one that begins like it is answered {}",
                    other.status
                ),
            ),
            (false, _) if one.status.is_client_error() => {
                (Verdict::Right, format!("a key of more than 300 characters is refused with {}", one.status))
            }
            (false, _) => (Verdict::Weak, format!("a long key is answered {}", one.status)),
        };
        Ok(checked("long-keys", verdict, seen))
    }

    pub(super) async fn letter_case(&self) -> Result<Checked> {
        let one = self.target.ask(&self.with(&quoted(&self.key("case-a")), &self.body)).await?;
        let upper = self.key("case-A");
        let other = self.target.ask(&self.with(&quoted(&upper), &self.other_body)).await?;
        Ok(match other.is_success() && !other.is_same(&one) {
            true => right("letter-case", "keys that differ in their letter case are different keys"),
            false if other.is_success() => checked("letter-case", Verdict::Unknown, ALIKE.to_owned()),
            false => checked(
                "letter-case",
                Verdict::Wrong,
                format!("a key that differs in its letter case is taken for a used one: {}", other.status),
            ),
        })
    }
}
