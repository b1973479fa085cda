//! A hot store in front of a durable one, searched over all its states.
//!
//! The other model searches the durable store, so a question to it is one step here. The uncertain
//! part here is the hot store: its answers are outdated by the time they are used; it forgets,
//! comes back with an older state or does not answer; a planted entry is in flight for a while. The
//! decision whether to believe it, the results of a claim and of an operator's change, and the
//! choice between two memories are the production code: `decide`, `slot`, `verbs`, `Rank`.

mod checks;

use semel::protocol::slot;
use semel::protocol::{decide, decide::OperatorChange};
use semel::protocol::{draft::Action as OwnerAction, draft::Replace, draft::Write};
use semel::store::{Ask, Claim, Done, Rank, Remembered, Takeover, Terms};
use semel::store::{backend::Replaced, backend::Written};
use semel::store::{verbs::Claiming, verbs::Step};
use semel::{AfterCrash, Timestamp};
use stateright::{Model, Property};

use super::state::{Row, Stage};
use super::store::{
    self, FAR_AHEAD, INTENT, KEY, OPERATOR, OWNER, fence, fence_number, outcome, record, row, token,
};

const REQUESTS: usize = 4;
const LIVES: usize = 3;

/// The limits of the events.
#[derive(Debug, Clone, Copy)]
struct Tier {
    requests: usize,
    takeover: bool,
    crashes: u8,
    expiries: u8,
    /// The number of times that the hot store loses its entry of the key.
    losses: u8,
    /// The number of times that it comes back in the state before its last change.
    relapses: u8,
    /// The number of times that an operator forgets the key.
    forgets: u8,
    /// The number of times that the retention is over.
    purges: u8,
    mutant: Option<Mutant>,
}

/// Small deviations, each of which breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// The hot store grants a key of which it has no entry.
    HotGrants,
    /// The hot store remembers running attempts, and is believed.
    HotRunningBelieved,
    /// An outcome goes to the hot store first.
    HotWrittenFirst,
    /// A forgotten key is removed from the hot store, which does not remember that it was.
    BuriedWithoutTrace,
    /// An operator's change goes to the hot store first.
    BuriedFirst,
    /// A repeated forget of an operator, after the key was used again, does not reach the hot
    /// store.
    MovedIsLeftAlone,
    /// A planted entry may arrive at any time.
    PlantedAnyTime,
    /// A planted entry replaces any existing one.
    RankIgnored,
    /// The hot store remembers for longer than the durable one.
    HotOutlivesDurable,
}

/// The entry of the hot store. The life only serves the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Memory {
    fence: u8,
    what: What,
    life: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    /// Only a mutant believes this.
    Running,
    Done(u8),
    Forgotten,
}

impl Memory {
    fn rank(self) -> Rank {
        Rank { fence: fence(self.fence), forgotten: self.what == What::Forgotten }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    durable: Option<Row>,
    hot: Option<Memory>,
    hot_before: Option<Option<Memory>>,
    /// The entries in flight to the hot store, sorted.
    planting: Vec<Memory>,
    requests: [At; REQUESTS],
    operator: Operator,
    last_fence: u8,
    /// The life of the key: another begins when it is forgotten or purged.
    life: u8,
    /// The oldest life that a new request may still see.
    known_life: u8,
    recorded: [u8; LIVES],
    runs: [u8; LIVES],
    crashes: u8,
    expiries: u8,
    losses: u8,
    relapses: u8,
    broken: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Idle,
    /// The answer of the hot store, from a time when lives from this one on could be known.
    Recalled(Option<Memory>, u8),
    Granted(u8),
    Ran(u8),
    /// Only in a mutant: the outcome has gone to the hot store and is still to be recorded.
    Planted(u8),
    Over,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operator {
    Idle,
    /// The durable store has forgotten the key, whose outcome had this fence, and which began this
    /// life.
    Forgotten {
        seen: u8,
        life: u8,
    },
    /// The hot store was not reached.
    Failed {
        seen: u8,
        life: u8,
    },
    /// Only in a mutant: the hot store has forgotten the key, and the durable one is still to.
    Buried,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Recall(usize),
    /// The hot store does not answer, or is not asked.
    RecallInVain(usize),
    /// The request acts on the answer of the hot store.
    Believe(usize),
    Run(usize),
    Complete(usize),
    Crash(usize),
    Plant(usize),
    LosePlant(usize),
    LeasePasses,
    Forget,
    Bury,
    /// The hot store does not answer the operator.
    BuryInVain,
    /// The operator repeats the request.
    BuryAgain,
    /// The hot store no longer remembers that the key was forgotten.
    TraceFades,
    Lose,
    Relapse,
    Purge,
}

impl Tier {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn ask(&self, i: usize) -> Ask {
        let policy = if self.takeover { AfterCrash::Retry } else { AfterCrash::Hold };
        Ask::new(KEY.clone(), INTENT.clone(), FAR_AHEAD)
            .with_token(token(i as u8 + 1))
            .with_owner(OWNER.clone())
            .with_terms(Terms::DEFAULT.with_after_crash(policy))
            .with_takeover(if self.takeover { Takeover::WhenOver } else { Takeover::Never })
    }

    /// A claim of the durable store, from the question to its answer.
    fn claim(&self, state: &mut State, i: usize) -> Claim {
        let (ask, now) = (self.ask(i), state.now());
        let mut slot = state.durable.map(record).map(Box::new);
        let mut claiming = Claiming::new(&ask, 1);
        let opened = slot::open(&mut slot, &ask, now);
        let claim = match claiming.opened(opened, now) {
            Step::Answer(claim) => claim,
            Step::Replace(item) => match claiming.replaced(slot::replace(&mut slot, &item, now)) {
                Step::Answer(claim) => claim,
                step => unreachable!("a replace is not followed by {step:?}"),
            },
            step => unreachable!("an open is not followed by {step:?}"),
        };
        state.keep(slot.as_deref().map(|record| row(record, now)));
        claim
    }

    fn recall(&self, state: &State) -> At {
        // Without the mark of a forgotten key, the entry is absent.
        let hot = state.hot.filter(|memory| memory.what != What::Forgotten);
        At::Recalled(hot, state.known_life)
    }

    fn believe(&self, state: &mut State, i: usize, memory: Option<Memory>, since: u8) {
        state.requests[i] = match memory {
            Some(memory @ Memory { what: What::Done(by), .. }) => {
                let done = Done::new(outcome(by), memory.rank().fence, FAR_AHEAD);
                let remembered = Remembered::new(INTENT.clone(), done);
                let claim = decide::remembered(&remembered, &self.ask(i));
                let Some(Claim::Done(told)) = claim else { unreachable!() };
                state.tell((told.outcome.status() - 200) as u8, memory.life, since);
                At::Over
            }
            Some(Memory { what: What::Running, .. }) if self.is(Mutant::HotRunningBelieved) => {
                let runs = state.durable.is_some_and(|row| row.stage == Stage::Running && !row.lease_over);
                if !runs {
                    state.broken = Some("a key is refused that nobody runs");
                }
                At::Over
            }
            None if self.is(Mutant::HotGrants) => {
                state.last_fence += 1;
                let fence = state.last_fence;
                state.set_hot(Some(Memory { fence, what: What::Running, life: state.life }));
                At::Granted(fence)
            }
            _ => self.decided(state, i),
        };
    }

    /// The decision of the durable store, and its effect.
    fn decided(&self, state: &mut State, i: usize) -> At {
        match self.claim(state, i) {
            Claim::Granted(lease) => {
                let fence = fence_number(lease.fence());
                if self.is(Mutant::HotRunningBelieved) {
                    state.plant(Memory { fence, what: What::Running, life: state.life });
                }
                At::Granted(fence)
            }
            Claim::Done(done) => {
                let (fence, by) = (fence_number(done.fence), (done.outcome.status() - 200) as u8);
                state.tell(by, state.life, state.known_life);
                state.plant(Memory { fence, what: What::Done(by), life: state.life });
                At::Over
            }
            _ => At::Over,
        }
    }

    fn complete(&self, state: &mut State, i: usize, fence: u8) {
        let now = state.now();
        let mut slot = state.durable.map(record).map(Box::new);
        let by = i as u8 + 1;
        let action = OwnerAction::Complete { fence: store::fence(fence), outcome: outcome(by) };
        let item = Write { key: KEY.clone(), token: token(by), action };
        let written = slot::write(&mut slot, &item, now);
        if self.is(Mutant::HotGrants) && slot.is_none() {
            // The grant of the hot store is recorded by the first writer.
            state.keep(Some(Row {
                token: by,
                fence,
                stage: Stage::Done,
                lease_over: false,
                hold: true,
                aged: false,
                aged_since_claim: false,
                outcome: by,
                version: 1,
            }));
        } else if matches!(written, Written::Applied) {
            state.keep(slot.as_deref().map(|record| row(record, now)));
        } else {
            return;
        }
        state.recorded[usize::from(state.life)] = by;
        state.tell(by, state.life, state.known_life);
        if !self.is(Mutant::HotWrittenFirst) {
            state.plant(Memory { fence, what: What::Done(by), life: state.life });
        }
    }

    /// An operator forgets a key that is done.
    fn forget(&self, state: &mut State) {
        let now = state.now();
        let found = state.durable.map(record).map(Box::new);
        let mut slot = found.clone();
        let found = found.expect("there is something to forget");
        let draft = decide::operator_change(
            Some(&found),
            found.fence,
            &OperatorChange::Forget,
            "model",
            token(OPERATOR),
            now,
        )
        .expect("what is done can be forgotten");
        let item = Replace {
            key: KEY.clone(),
            expected_token: found.token,
            expected_version: found.version,
            draft,
            not_after: None,
        };
        let replaced = slot::replace(&mut slot, &item, now);
        assert!(matches!(replaced, Replaced::Applied { .. }), "nothing came between");
        state.keep(slot.as_deref().map(|record| row(record, now)));
        // The retention of the record is over, so it counts as absent.
        state.durable = None;
        state.life += 1;
    }

    fn bury(&self, state: &mut State, fence: u8) {
        let trace = Memory { fence, what: What::Forgotten, life: state.life };
        if self.is(Mutant::BuriedWithoutTrace) {
            state.set_hot(None);
        } else if state.hot.is_none_or(|there| there.rank() <= trace.rank()) {
            state.set_hot(Some(trace));
        }
    }

    fn request_actions(&self, state: &State, i: usize, actions: &mut Vec<Action>) {
        match state.requests[i] {
            At::Idle => {
                actions.push(Action::Recall(i));
                // A store that grants cannot be left out.
                if !self.is(Mutant::HotGrants) {
                    actions.push(Action::RecallInVain(i));
                }
            }
            At::Recalled(..) => actions.push(Action::Believe(i)),
            At::Granted(_) => actions.push(Action::Run(i)),
            At::Ran(_) | At::Planted(_) => actions.push(Action::Complete(i)),
            At::Over | At::Crashed => {}
        }
        if !matches!(state.requests[i], At::Idle | At::Over | At::Crashed) && state.crashes < self.crashes {
            actions.push(Action::Crash(i));
        }
    }

    fn operator_changes(&self, state: &State, actions: &mut Vec<Action>) {
        let is_done = state.durable.is_some_and(|row| row.stage == Stage::Done);
        let first_is_bury = self.is(Mutant::BuriedFirst);
        match state.operator {
            Operator::Idle if is_done && self.forgets > 0 => {
                actions.push(if first_is_bury { Action::Bury } else { Action::Forget });
            }
            Operator::Forgotten { .. } => actions.extend([Action::Bury, Action::BuryInVain]),
            Operator::Failed { .. } => actions.push(Action::BuryAgain),
            Operator::Buried if is_done => actions.push(Action::Forget),
            _ => {}
        }
    }

    fn hot_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_trace = state.hot.is_some_and(|memory| memory.what == What::Forgotten);
        if let Some(trace) = state.hot.filter(|_| is_trace) {
            // The mark is remembered for longer than any older entry can be in flight.
            let older = state.planting.iter().any(|memory| memory.rank() <= trace.rank());
            if !older || self.is(Mutant::PlantedAnyTime) {
                actions.push(Action::TraceFades);
            }
        } else if state.hot.is_some() && state.losses < self.losses {
            // While a forgotten entry is in flight, a loss could restore it; that is documented,
            // and not promised.
            if state.planting.iter().all(|memory| memory.life >= state.known_life) {
                actions.push(Action::Lose);
            }
        }
        if state.hot_before.is_some() && state.relapses < self.relapses {
            actions.push(Action::Relapse);
        }
        // The entry has expired in the hot store by then, and is no longer planted.
        let of_this_life = |memory: &Memory| memory.life == state.life;
        let remembered = state.hot.iter().chain(&state.planting).any(of_this_life);
        let is_done = state.durable.is_some_and(|row| row.stage == Stage::Done);
        let may_purge = !remembered || self.is(Mutant::HotOutlivesDurable);
        if is_done && may_purge && state.life < self.purges {
            actions.push(Action::Purge);
        }
    }
}

impl State {
    fn now(&self) -> Timestamp {
        store::moment(self.last_fence + 1)
    }

    fn keep(&mut self, durable: Option<Row>) {
        self.durable = durable;
        self.last_fence = self.last_fence.max(durable.map_or(0, |row| row.fence));
    }

    fn set_hot(&mut self, hot: Option<Memory>) {
        self.hot_before = Some(self.hot);
        self.hot = hot;
    }

    fn plant(&mut self, memory: Memory) {
        self.planting.push(memory);
        self.planting.sort();
    }

    /// The operator learns that the key was forgotten when this life began.
    fn heard(&mut self, life: u8) {
        self.known_life = self.known_life.max(life);
        self.operator = Operator::Over;
    }

    /// A request from a time when lives from this one on could be known gets an outcome of a life.
    fn tell(&mut self, by: u8, life: u8, since: u8) {
        if self.recorded[usize::from(life)] != by {
            self.broken = Some("client was told an outcome that is not recorded");
        } else if life < since {
            self.broken = Some("client was told an outcome of an earlier life");
        }
    }
}

impl Model for Tier {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            durable: None,
            hot: None,
            hot_before: None,
            planting: Vec::new(),
            requests: [At::Idle; REQUESTS],
            operator: Operator::Idle,
            last_fence: 0,
            life: 0,
            known_life: 0,
            recorded: [0; LIVES],
            runs: [0; LIVES],
            crashes: 0,
            expiries: 0,
            losses: 0,
            relapses: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for i in 0..self.requests {
            self.request_actions(state, i, actions);
        }
        for k in 0..state.planting.len() {
            actions.extend([Action::Plant(k), Action::LosePlant(k)]);
        }
        let is_live = |row: Row| row.stage == Stage::Running && !row.lease_over;
        if state.durable.is_some_and(is_live) && state.expiries < self.expiries {
            actions.push(Action::LeasePasses);
        }
        self.operator_changes(state, actions);
        self.hot_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Recall(i) => state.requests[i] = self.recall(last),
            Action::RecallInVain(i) => state.requests[i] = At::Recalled(None, last.known_life),
            Action::Believe(i) => {
                let At::Recalled(memory, since) = last.requests[i] else { unreachable!() };
                self.believe(&mut state, i, memory, since);
            }
            Action::Run(i) => {
                let At::Granted(fence) = last.requests[i] else { unreachable!() };
                state.runs[usize::from(state.life)] += 1;
                state.requests[i] = At::Ran(fence);
            }
            Action::Complete(i) => match last.requests[i] {
                At::Ran(fence) if self.is(Mutant::HotWrittenFirst) => {
                    state.set_hot(Some(Memory { fence, what: What::Done(i as u8 + 1), life: state.life }));
                    state.requests[i] = At::Planted(fence);
                }
                At::Ran(fence) | At::Planted(fence) => {
                    state.requests[i] = At::Over;
                    self.complete(&mut state, i, fence);
                }
                at => unreachable!("nothing is completed at {at:?}"),
            },
            Action::Crash(i) => {
                state.requests[i] = At::Crashed;
                state.crashes += 1;
            }
            Action::Plant(k) => {
                let memory = state.planting.remove(k);
                let newer = state.hot.is_some_and(|there| there.rank() > memory.rank());
                if !newer || self.is(Mutant::RankIgnored) {
                    state.set_hot(Some(memory));
                }
            }
            Action::LosePlant(k) => drop(state.planting.remove(k)),
            Action::LeasePasses => {
                state.durable = state.durable.map(|row| Row { lease_over: true, ..row });
                state.expiries += 1;
            }
            Action::Forget => {
                self.forget(&mut state);
                if last.operator == Operator::Buried {
                    state.known_life = state.life;
                    state.operator = Operator::Over;
                } else {
                    let seen = last.durable.map_or(0, |row| row.fence);
                    state.operator = Operator::Forgotten { seen, life: state.life };
                }
            }
            Action::Bury => {
                if let Operator::Forgotten { life, .. } = last.operator {
                    // The clock is ahead of every fence so far.
                    self.bury(&mut state, last.last_fence);
                    state.heard(life);
                } else {
                    let seen = last.durable.map_or(0, |row| row.fence);
                    self.bury(&mut state, seen);
                    state.operator = Operator::Buried;
                }
            }
            Action::BuryInVain => {
                let Operator::Forgotten { seen, life } = last.operator else { unreachable!() };
                state.operator = Operator::Failed { seen, life };
            }
            Action::BuryAgain => {
                let Operator::Failed { seen, life } = last.operator else { unreachable!() };
                let fence = match last.durable {
                    // The key is missing.
                    None => last.last_fence,
                    // The key was used since.
                    Some(_) if self.is(Mutant::MovedIsLeftAlone) => 0,
                    Some(_) => seen,
                };
                self.bury(&mut state, fence);
                state.heard(life);
            }
            Action::TraceFades => state.set_hot(None),
            Action::Lose => {
                state.set_hot(None);
                state.losses += 1;
            }
            Action::Relapse => {
                state.hot = last.hot_before.flatten();
                state.hot_before = None;
                state.relapses += 1;
            }
            Action::Purge => {
                state.durable = None;
                state.life += 1;
                state.known_life = state.life;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every promise holds", |tier, state| tier.violation(state).is_none())]
    }
}

impl Tier {
    fn violation(&self, state: &State) -> Option<&'static str> {
        let ran_twice = !self.takeover && state.runs.iter().any(|runs| *runs > 1);
        state.broken.or(ran_twice.then_some("handler ran twice under hold"))
    }
}
