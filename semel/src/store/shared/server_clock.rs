//! The clock of a server, extrapolated from its last answer.

use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::words::error::StoreError;
#[cfg(feature = "redis")]
use crate::words::record::{Record, RecordState};
use crate::words::time::Timestamp;

/// The time for which the clock is extrapolated without asking the server. Every answer updates it,
/// so this matters only for a server that gets hardly any requests. In this time, clocks drift
/// apart by less than the distance of a claim's `not_after`; if the server's clock was set, its
/// next answer corrects the extrapolation.
const KEPT: Duration = Duration::from_secs(600);

/// The time for which a reading is preferred to later ones that show less time. The latency of an
/// answer makes the clock look slow by as much, so of several readings the one that shows the
/// latest time is the best.
const BEST_FOR: Duration = Duration::from_secs(10);

/// The difference that a slow answer cannot explain: the clock was set back.
const SET_BACK: Duration = Duration::from_secs(1);

/// The last reading of a server's clock, and its moment.
#[derive(Default)]
pub(crate) struct ServerClock(Mutex<Option<Heard>>);

#[derive(Clone, Copy)]
struct Heard {
    now: Timestamp,
    at: Instant,
    /// The moment at which the server was last asked, possibly without an answer.
    asked: Instant,
}

impl Heard {
    fn now(self, at: Instant) -> Timestamp {
        self.now.after(at - self.at)
    }

    /// Returns `true` if a reading at that moment differs only because its answer took longer.
    fn is_better_than(self, now: Timestamp, at: Instant) -> bool {
        let expected = self.now(at);
        at - self.at < BEST_FOR && now < expected && expected < now.after(SET_BACK)
    }
}

impl ServerClock {
    /// Records a reading of the server's clock. It is exact if the answer was quick.
    pub(crate) fn hear(&self, now: Timestamp) {
        let at = Instant::now();
        let mut heard = self.0.lock();
        *heard = match *heard {
            Some(best) if best.is_better_than(now, at) => Some(Heard { asked: at, ..best }),
            _ => Some(Heard { now, at, asked: at }),
        };
    }

    /// The server's time, if the server need not be asked.
    pub(crate) fn known(&self) -> Option<Timestamp> {
        let heard = (*self.0.lock())?;
        let at = Instant::now();
        (at - heard.asked < KEPT).then(|| heard.now(at))
    }

    /// The server's time. The server is asked if it has not answered for long; while it is silent,
    /// its last reading is used, because a store that only replays outcomes needs no server for
    /// that.
    ///
    /// The future of `ask` is created only when needed, and boxed: it connects if necessary, which
    /// makes it many times as large as the rest.
    ///
    /// # Errors
    /// The error of the server, if it never reported its time.
    pub(crate) async fn or_ask<'a>(
        &self,
        ask: impl FnOnce() -> BoxFuture<'a, Result<Timestamp, StoreError>>,
    ) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.known() {
            return Ok(now);
        }
        let heard = *self.0.lock();
        let Some(heard) = heard else {
            let now = ask().await?;
            self.hear(now);
            return Ok(now);
        };
        // Concurrent callers need not ask as well.
        *self.0.lock() = Some(Heard { asked: Instant::now(), ..heard });
        match ask().await {
            Ok(now) => {
                self.hear(now);
                Ok(now)
            }
            Err(_) => Ok(heard.now(Instant::now())),
        }
    }
}

/// The distance by which the clock of a server is ahead of that of its store, in microseconds. A
/// store of several servers has the clock of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg(feature = "redis")]
pub(crate) struct ClockOffset(i64);

#[cfg(feature = "redis")]
impl ClockOffset {
    pub(crate) const NONE: Self = Self(0);

    /// The offset between clocks that showed these times at about the same moment. A small
    /// difference is the latency of the two answers, and would make the times of a record differ
    /// from one read to the next: it counts as none.
    pub(crate) fn between(store: Timestamp, server: Timestamp) -> Self {
        const SMALL_MICROS: u64 = 250_000;
        let offset = server.as_micros().wrapping_sub(store.as_micros()).cast_signed();
        Self(if offset.unsigned_abs() < SMALL_MICROS { 0 } else { offset })
    }

    /// Converts a moment of the store's clock to the clock of the server.
    pub(crate) fn to_server(self, moment: Timestamp) -> Timestamp {
        Timestamp::from_micros(moment.as_micros().saturating_add_signed(self.0))
    }

    /// Converts a moment of the server's clock to the clock of the store.
    pub(crate) fn to_store(self, moment: Timestamp) -> Timestamp {
        Self(self.0.saturating_neg()).to_server(moment)
    }

    /// Converts the times of a record from the server's clock to that of the store.
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

    async fn asked(clock: &ServerClock, answer: Option<u64>) -> Option<u64> {
        let answer = answer.map(Timestamp::from_micros).ok_or_else(|| StoreError::unavailable("it is down"));
        clock.or_ask(|| Box::pin(std::future::ready(answer))).await.ok().map(Timestamp::as_micros)
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_told_from_what_was_heard() {
        let clock = ServerClock::default();
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
        let clock = ServerClock::default();
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
            let offset = ClockOffset::between(moment(store), moment(server));
            assert_eq!(offset.to_server(moment(store + 3)), moment(server + 3));
            assert_eq!(offset.to_store(moment(server + 3)), moment(store + 3));
        }
        assert_eq!(ClockOffset::between(moment(late), moment(0)).to_server(moment(3)), moment(0));
    }

    /// The latency of the two answers must not appear as a difference between the clocks.
    #[test]
    #[cfg(feature = "redis")]
    fn a_small_difference_between_clocks_counts_as_none() {
        let moment = Timestamp::from_micros;
        assert_eq!(ClockOffset::between(moment(1_000_000), moment(1_200_000)), ClockOffset::NONE);
        assert_eq!(ClockOffset::between(moment(1_200_000), moment(1_000_000)), ClockOffset::NONE);
    }

    /// A replay from a server whose clock is far ahead is not late, and its record lasts as long as
    /// it should.
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
        let offset = ClockOffset::between(minutes(100), minutes(110));
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
        let converted = offset.record_to_store(record);
        let RecordState::Done { finished_at, .. } = converted.state else { panic!("{converted:?}") };
        let note = converted.note.as_ref().map(|note| note.at);
        assert_eq!(
            (finished_at, note, converted.lease_until, converted.heartbeat_at),
            (minutes(93), Some(minutes(96)), minutes(95), minutes(92))
        );
        assert_eq!((converted.created_at, converted.updated_at), (minutes(91), minutes(94)));
        let now = offset.to_store(minutes(110));
        let answer = decide::claim(&converted, &ask, now);
        assert!(matches!(&answer, decide::Decision::Answer(claim) if claim.word() == "done"), "{answer:?}");
        assert_eq!(converted.expires_at(), Some(minutes(93 + 60)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_told_while_the_server_is_away() {
        let clock = ServerClock::default();
        clock.hear(Timestamp::from_micros(0));
        advance(KEPT * 2).await;
        assert_eq!(asked(&clock, None).await, Some(1_200_000_000));
        advance(SECOND).await;
        assert_eq!(asked(&clock, Some(1)).await, Some(1_201_000_000), "it is not asked again soon");
    }
}
