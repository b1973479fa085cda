//! A small model of the protocol: a record per key, requests that arrive late or never, handlers
//! that crash, stall and release.
//!
//! A queue of events, ordered by time, drives it. Until healing anything may fail; afterwards
//! nothing fails, and each key is requested until it is settled.

use std::collections::BTreeMap;

use super::dice::Dice;
use crate::checker::{History, Policy, Terms, micros};
use crate::event::{Answer, Effect, Receipt, Request, Step, What};

const MS: u64 = 1_000;

/// The record of a key.
#[derive(Clone)]
struct Record {
    intent: u32,
    fence: u64,
    attempt: u32,
    state: State,
}

#[derive(Clone)]
enum State {
    /// The end of the lease; the key is then lost or held.
    Running(u64),
    Released,
    Done(Receipt),
}

/// An event in the queue.
#[derive(Clone)]
enum Event {
    Arrives(Asked),
    /// The handler ends: it answers, or releases the key.
    Ends {
        asked: Asked,
        start: Step,
        releases: bool,
    },
    /// The database is killed.
    Killed,
}

#[derive(Clone)]
struct Asked {
    intent: u32,
    sent_at: u64,
    after: bool,
}

struct Key<'a> {
    terms: &'a Terms,
    dice: &'a mut Dice,
    history: &'a mut History,
    caller: String,
    key: String,
    record: Option<Record>,
    queue: BTreeMap<(u64, u64), Event>,
    /// The counter that gives runs and events unique names.
    number: u64,
}

pub(super) fn history(terms: &Terms, dice: &mut Dice) -> History {
    let mut history = History::default();
    for (caller, key) in [("ann", "k"), ("bob", "k"), ("ann", "l")] {
        let (caller, key) = (caller.to_owned(), key.to_owned());
        let (record, queue) = (None, BTreeMap::new());
        Key { terms, dice, history: &mut history, caller, key, record, queue, number: 0 }.play();
    }
    history
}

impl Key<'_> {
    fn play(mut self) {
        let healed_at = self.terms.healed_at;
        for _ in 0..1 + self.dice.below(8) {
            let intent = u32::from(self.dice.percent(15));
            let sent_at = self.dice.below(healed_at - 3_000 * MS);
            self.send(Asked { intent, sent_at, after: false }, 40 * MS);
        }
        if self.terms.forgets {
            let killed_at = self.dice.below(healed_at);
            self.at(killed_at, Event::Killed);
        }
        self.send(Asked { intent: 0, sent_at: healed_at + 1, after: true }, 5 * MS);
        while let Some(((now, _), event)) = self.queue.pop_first() {
            match event {
                Event::Arrives(asked) => self.arrives(now, asked),
                Event::Ends { asked, start, releases } => self.ends(now, asked, start, releases),
                // Only a first grant that nothing followed may be unflushed.
                Event::Killed => self.record = self.record.take().filter(|record| !record.is_fresh()),
            }
        }
    }

    fn at(&mut self, moment: u64, event: Event) {
        self.number += 1;
        self.queue.insert((moment, self.number), event);
    }

    fn send(&mut self, asked: Asked, slow: u64) {
        let arrives_at = asked.sent_at + self.dice.below(slow);
        self.at(arrives_at, Event::Arrives(asked));
    }

    /// The table of answers to a claim.
    fn arrives(&mut self, now: u64, asked: Asked) {
        let fails = now < self.terms.healed_at;
        if fails && self.dice.percent(15) {
            let gets = if self.dice.percent(50) { Answer::Lost } else { refused(503, "store_unavailable") };
            return self.answers(now, &asked, gets);
        }
        match self.record.clone() {
            None => self.granted(now, asked, 0, 1),
            Some(record) if record.intent != asked.intent => {
                self.answers(now, &asked, refused(422, "idempotency_key_reused"));
            }
            Some(Record { state: State::Done(receipt), .. }) => self.tells(now, &asked, receipt, true),
            Some(Record { state: State::Running(until), .. }) if now < until => {
                self.answers(now, &asked, refused(409, "idempotency_key_pending"));
            }
            Some(Record { state: State::Running(_), .. }) if self.terms.policy == Policy::Hold => {
                self.answers(now, &asked, refused(409, "idempotency_outcome_unknown"));
            }
            Some(record) => self.granted(now, asked, record.fence, record.attempt + 1),
        }
    }

    fn granted(&mut self, now: u64, asked: Asked, last: u64, attempt: u32) {
        let fails = now < self.terms.healed_at;
        let (intent, fence) = (asked.intent, now.max(last + 1));
        let lease = micros(self.terms.lease);
        self.record = Some(Record { intent, fence, attempt, state: State::Running(now + lease) });
        if fails && self.dice.percent(10) {
            // The attempt is lost before its handler starts, or its claim is voided.
            if self.dice.percent(50) {
                self.set(State::Released);
            }
            return self.answers(now, &asked, Answer::Lost);
        }
        self.number += 1;
        let run = format!("{}-{}-{}", self.caller, self.key, self.number);
        let (caller, key) = (self.caller.clone(), self.key.clone());
        let at = now + self.dice.below(2 * MS);
        let start = Step { what: What::Start, at, caller, key, intent, run, fence, attempt };
        self.history.steps.push(start.clone());
        if fails && self.dice.percent(25) {
            return self.crashes(at, &asked, &start);
        }
        // A stopped handler takes longer than its lease.
        let stalls = if fails && self.dice.percent(25) { self.dice.below(2 * lease) } else { 0 };
        let ends_at = at + self.dice.below(20 * MS) + stalls;
        let releases = fails && self.dice.percent(25);
        self.at(ends_at, Event::Ends { asked, start, releases });
    }

    fn crashes(&mut self, now: u64, asked: &Asked, start: &Step) {
        if self.terms.policy != Policy::Transactional && self.dice.percent(50) {
            self.effect(start);
        }
        if self.terms.abandons && self.dice.percent(50) {
            self.set(State::Running(now));
            return self.answers(now, asked, refused(502, "upstream_lost"));
        }
        self.answers(now, asked, Answer::Lost);
    }

    fn ends(&mut self, now: u64, asked: Asked, start: Step, releases: bool) {
        let owns = self.record.as_ref().is_some_and(|record| record.is_running_as(start.fence));
        if releases {
            self.history.steps.push(Step { what: What::Release, at: now, ..start });
            if owns {
                self.set(State::Released);
            }
            return self.answers(now, &asked, refused(503, ""));
        }
        self.history.steps.push(Step { what: What::Answer, at: now, ..start.clone() });
        if owns || self.terms.policy != Policy::Transactional {
            self.effect(&start);
        }
        let Step { caller, key, intent, run, fence, .. } = start;
        let receipt = Receipt { caller, key, intent, run, fence };
        if owns {
            self.set(State::Done(receipt.clone()));
            return self.tells(now, &asked, receipt, false);
        }
        // The loser receives the winner's outcome.
        match self.record.clone() {
            Some(Record { intent, state: State::Done(winner), .. }) if intent == asked.intent => {
                self.tells(now, &asked, winner, true);
            }
            _ => self.answers(now, &asked, refused(409, "idempotency_key_pending")),
        }
    }

    fn set(&mut self, state: State) {
        if let Some(record) = &mut self.record {
            record.state = state;
        }
    }

    fn effect(&mut self, of: &Step) {
        let Step { caller, key, run, .. } = of.clone();
        self.history.effects.push(Effect { caller, key, run });
    }

    fn tells(&mut self, now: u64, asked: &Asked, receipt: Receipt, replayed: bool) {
        let digest = receipt.run.clone();
        self.answers(now, asked, Answer::Outcome { status: 201, replayed, digest, body: receipt });
    }

    /// The client receives the answer, or has disconnected; after healing it repeats its request
    /// until it has an answer.
    fn answers(&mut self, now: u64, asked: &Asked, answer: Answer) {
        let Asked { intent, sent_at, after } = *asked;
        let lost = !after && self.dice.percent(15);
        let answer = if lost { Answer::Lost } else { answer };
        let ended_at = now + self.dice.below(10 * MS);
        let is_settled = match &answer {
            Answer::Outcome { .. } => true,
            Answer::Refused { status: 409, code } => code == "idempotency_outcome_unknown",
            Answer::Refused { status, .. } => *status == 422,
            Answer::Lost => false,
        };
        let (caller, key) = (self.caller.clone(), self.key.clone());
        self.history.requests.push(Request { caller, key, intent, sent_at, ended_at, after, answer });
        if after && !is_settled {
            self.send(Asked { intent, sent_at: ended_at + 50 * MS, after }, 5 * MS);
        }
    }
}

impl Record {
    fn is_fresh(&self) -> bool {
        self.attempt == 1 && matches!(self.state, State::Running(_))
    }

    fn is_running_as(&self, fence: u64) -> bool {
        self.fence == fence && matches!(self.state, State::Running(_))
    }
}

fn refused(status: u16, code: &str) -> Answer {
    Answer::Refused { status, code: code.into() }
}
