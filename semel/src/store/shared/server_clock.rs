//! The clock of a server, told from the last time it was heard.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::words::error::StoreError;
#[cfg(feature = "redis")]
use crate::words::record::{Record, RecordState};
use crate::words::time::Timestamp;

/// For how long the time is told without asking. Every answer tells it anew, so this is for a server that is hardly
/// asked anything. Clocks do not drift apart by as much as a claim's `not_after` is ahead; if one was set, the next answer
/// tells.
const KEPT: Duration = Duration::from_secs(600);

/// For how long a reading is preferred to later ones that show less time. The time that an answer takes makes the clock look
/// slow by as much, so of several readings the one that shows most is the best.
const BEST_FOR: Duration = Duration::from_secs(10);

/// A difference of this much is no slow answer: the clock was set back.
const SET_BACK: Duration = Duration::from_secs(1);

/// When a server was last heard, and what its clock said then.
#[derive(Default)]
pub(crate) struct HeardClock(Mutex<Option<Heard>>);

#[derive(Clone, Copy)]
struct Heard {
    now: Timestamp,
    at: Instant,
    /// When it was last asked, perhaps in vain.
    asked: Instant,
}

impl Heard {
    fn now(self, at: Instant) -> Timestamp {
        self.now.after(at - self.at)
    }

    /// Whether a reading at that moment is only one whose answer took longer.
    fn is_better_than(self, now: Timestamp, at: Instant) -> bool {
        let expected = self.now(at);
        at - self.at < BEST_FOR && now < expected && expected < now.after(SET_BACK)
    }
}

impl HeardClock {
    /// The server has told its time: just now, if its answer was quick.
    pub(crate) fn hear(&self, now: Timestamp) {
        let at = Instant::now();
        let mut heard = self.heard();
        *heard = match *heard {
            Some(best) if best.is_better_than(now, at) => Some(Heard { asked: at, ..best }),
            _ => Some(Heard { now, at, asked: at }),
        };
    }

    /// The server's time, if it need not be asked.
    pub(crate) fn known(&self) -> Option<Timestamp> {
        let heard = (*self.heard())?;
        let at = Instant::now();
        (at - heard.asked < KEPT).then(|| heard.now(at))
    }

    /// The server's time. It is asked if it has not been heard for long; while it does not answer, what it said last has to
    /// do: who remembers what is done needs no server for that.
    ///
    /// What asks is made only then, and boxed: it connects if need be, which is many times as large as all the rest.
    ///
    /// # Errors
    /// What the server said, if it never told its time.
    pub(crate) async fn or_ask<'a>(
        &self,
        ask: impl FnOnce() -> BoxFuture<'a, Result<Timestamp, StoreError>>,
    ) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.known() {
            return Ok(now);
        }
        let heard = *self.heard();
        let Some(heard) = heard else {
            let now = ask().await?;
            self.hear(now);
            return Ok(now);
        };
        // Nobody else has to ask meanwhile.
        *self.heard() = Some(Heard { asked: Instant::now(), ..heard });
        match ask().await {
            Ok(now) => {
                self.hear(now);
                Ok(now)
            }
            Err(_) => Ok(heard.now(Instant::now())),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Option<Heard>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the clock of a server is ahead of that of its store, in microseconds. A store of several servers has the clock of
/// one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg(feature = "redis")]
pub(crate) struct Shift(i64);

#[cfg(feature = "redis")]
impl Shift {
    pub(crate) const NONE: Self = Self(0);

    /// The clocks have said this at about the same moment. A small difference is the time that the two answers took, and
    /// would make the moments of a record differ from one read to the next: it counts as none.
    pub(crate) fn between(store: Timestamp, server: Timestamp) -> Self {
        const SMALL_MICROS: u64 = 250_000;
        let shift = server.as_micros().wrapping_sub(store.as_micros()).cast_signed();
        Self(if shift.unsigned_abs() < SMALL_MICROS { 0 } else { shift })
    }

    /// The moment by the clock of the server that the store's clock calls so.
    pub(crate) fn to_server(self, moment: Timestamp) -> Timestamp {
        Timestamp::from_micros(moment.as_micros().saturating_add_signed(self.0))
    }

    /// The other way round.
    pub(crate) fn to_store(self, moment: Timestamp) -> Timestamp {
        Self(self.0.saturating_neg()).to_server(moment)
    }

    /// A record whose moments the server has told, with those of the store's clock.
    pub(crate) fn record_to_store(self, mut record: Record) -> Record {
        let moments = [
            &mut record.lease_until,
            &mut record.heartbeat_at,
            &mut record.created_at,
            &mut record.updated_at,
        ];
        for moment in moments {
            *moment = self.to_store(*moment);
        }
        if let RecordState::Done { finished_at, .. } = &mut record.state {
            *finished_at = self.to_store(*finished_at);
        }
        if let Some(note) = &mut record.note {
            note.at = self.to_store(note.at);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    async fn asked(clock: &HeardClock, answer: Option<u64>) -> Option<u64> {
        let answer = answer.map(Timestamp::from_micros).ok_or_else(|| StoreError::unavailable("it is away"));
        clock.or_ask(|| Box::pin(std::future::ready(answer))).await.ok().map(Timestamp::as_micros)
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_told_from_what_was_heard() {
        let clock = HeardClock::default();
        assert_eq!(asked(&clock, None).await, None);
        assert_eq!(asked(&clock, Some(7)).await, Some(7));
        advance(SECOND).await;
        assert_eq!(asked(&clock, Some(1)).await, Some(1_000_007), "it is not asked");
        clock.hear(Timestamp::from_micros(2_000_050));
        assert_eq!(asked(&clock, None).await, Some(2_000_050));
        advance(KEPT).await;
        assert_eq!(asked(&clock, Some(9)).await, Some(9), "after long it is asked");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_slow_does_not_turn_the_clock_back() {
        let clock = HeardClock::default();
        let known = || clock.known().map(Timestamp::as_micros);
        clock.hear(Timestamp::from_micros(5_000_000));
        clock.hear(Timestamp::from_micros(4_100_000));
        assert_eq!(known(), Some(5_000_000));
        clock.hear(Timestamp::from_micros(5_100_000));
        assert_eq!(known(), Some(5_100_000), "a quicker answer shows more time");
        clock.hear(Timestamp::from_micros(4_000_000));
        assert_eq!(known(), Some(4_000_000), "a clock that was set back is believed");
        advance(BEST_FOR).await;
        clock.hear(Timestamp::from_micros(13_500_000));
        assert_eq!(known(), Some(13_500_000), "clocks drift");
    }

    #[test]
    #[cfg(feature = "redis")]
    fn moments_are_told_by_the_clock_of_the_server_that_judges_them() {
        let moment = Timestamp::from_micros;
        let (early, late) = (1_000_000, 1_700_000);
        for (store, server) in [(early, late), (late, early), (5, 5)] {
            let shift = Shift::between(moment(store), moment(server));
            assert_eq!(shift.to_server(moment(store + 3)), moment(server + 3));
            assert_eq!(shift.to_store(moment(server + 3)), moment(store + 3));
        }
        assert_eq!(Shift::between(moment(late), moment(0)).to_server(moment(3)), moment(0));
    }

    /// The time that the two answers take must not show as a difference between the clocks.
    #[test]
    #[cfg(feature = "redis")]
    fn a_small_difference_between_clocks_counts_as_none() {
        let moment = Timestamp::from_micros;
        assert_eq!(Shift::between(moment(1_000_000), moment(1_200_000)), Shift::NONE);
        assert_eq!(Shift::between(moment(1_200_000), moment(1_000_000)), Shift::NONE);
    }

    /// A replay from a server whose clock is far ahead: it is not late, and its record lasts as long as it should.
    #[test]
    #[cfg(feature = "redis")]
    fn a_record_is_judged_by_the_clock_of_the_store() {
        use crate::protocol::ask::{Ask, Takeover};
        use crate::protocol::decide;
        use crate::words::intent::Intent;
        use crate::words::key::Key;
        use crate::words::lease::{Fence, Token};
        use crate::words::outcome::Outcome;
        use crate::words::record::{Note, Owner};
        use crate::words::terms::{AfterCrash, Terms};

        let minutes = |number: u64| Timestamp::from_micros(number * 60_000_000);
        let shift = Shift::between(minutes(100), minutes(110));
        let record = Record {
            key: Key::new("tests", "key").unwrap(),
            intent: Intent::of("charge", "", &1).unwrap(),
            state: RecordState::Done { outcome: Outcome::new(200).unwrap(), finished_at: minutes(103) },
            version: 2,
            token: Token::random(),
            fence: Fence::new(1),
            attempt: 1,
            owner: Owner::new("one"),
            lease_until: minutes(105),
            heartbeat_at: minutes(102),
            created_at: minutes(101),
            updated_at: minutes(104),
            retention: Duration::from_secs(3_600),
            after_crash: AfterCrash::Hold,
            note: Some(Note::new(minutes(106), "held")),
        };
        let ask = Ask {
            key: record.key.clone(),
            intent: record.intent.clone(),
            token: Token::random(),
            owner: Owner::new("two"),
            terms: Terms::DEFAULT,
            takeover: Takeover::Never,
            not_after: minutes(101),
        };
        let converted = shift.record_to_store(record);
        let RecordState::Done { finished_at, .. } = converted.state else { panic!("{converted:?}") };
        let note = converted.note.as_ref().map(|note| note.at);
        assert_eq!(
            (finished_at, note, converted.lease_until, converted.heartbeat_at),
            (minutes(93), Some(minutes(96)), minutes(95), minutes(92))
        );
        assert_eq!((converted.created_at, converted.updated_at), (minutes(91), minutes(94)));
        let now = shift.to_store(minutes(110));
        let answer = decide::claim(&converted, &ask, now);
        assert!(matches!(&answer, decide::Decision::Answer(claim) if claim.word() == "done"), "{answer:?}");
        assert_eq!(converted.expires_at(), Some(minutes(93 + 60)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_told_while_the_server_is_away() {
        let clock = HeardClock::default();
        clock.hear(Timestamp::from_micros(0));
        advance(KEPT * 2).await;
        assert_eq!(asked(&clock, None).await, Some(1_200_000_000));
        advance(SECOND).await;
        assert_eq!(asked(&clock, Some(1)).await, Some(1_201_000_000), "it is not asked again soon");
    }
}
