//! The steps of the protocol over one key, for the search.

use stateright::{Model, Property};

use super::mutants::Mutant;
use super::state::{Answer, AnsweredOp, At, Message, Op, Reply, Request, Row, Stage, State};
use super::store;

/// The limits of the events, and the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) requests: usize,
    /// The largest number of sends of each message.
    pub(crate) sends: u8,
    pub(crate) expiries: u8,
    pub(crate) crashes: u8,
    /// The number of times that the store loses its last acknowledged write.
    pub(crate) failovers: u8,
    /// The number of retentions that pass.
    pub(crate) retentions: u8,
    /// Set for `retry` and `transactional`, which take over.
    pub(crate) takeover: bool,
    /// Set if the first request is under `hold` regardless.
    pub(crate) mixed: bool,
    pub(crate) transactional: bool,
    /// Set if the effect refuses a fence lower than one it has seen.
    pub(crate) fenced: bool,
    pub(crate) reconcile: Reconcile,
    /// Set if the work may report that nothing happened.
    pub(crate) clean_failures: bool,
    /// Set to remember the tokens that were released or voided.
    pub(crate) watch_retired: bool,
    pub(crate) mutant: Option<Mutant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconcile {
    Never,
    OwnerDead,
    OwnerAlive,
}

/// The base configuration: `hold`, two requests, each message sent twice.
pub(crate) const HOLD: Config = Config {
    requests: 2,
    sends: 2,
    expiries: 2,
    crashes: 1,
    failovers: 0,
    retentions: 0,
    takeover: false,
    mixed: false,
    transactional: false,
    fenced: false,
    reconcile: Reconcile::Never,
    clean_failures: true,
    watch_retired: false,
    mutant: None,
};

/// One step of any party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Send(usize),
    SendAgain(usize),
    GiveUp(usize),
    Run(usize),
    FailCleanly(usize),
    PassNotAfter(usize),
    Void(usize),
    Crash(usize),
    /// The store applies this message, and the answer is in flight.
    Apply(usize),
    /// The store applies this message, and the answer is lost.
    ApplyInVain(usize),
    /// This answer arrives.
    Receive(usize),
    LeasePasses,
    RetentionPasses,
    Reconcile,
    Purge,
    /// The store comes back without its last acknowledged write.
    Failover,
}

impl Config {
    pub(crate) fn mutated(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns `true` if a request is made under `hold`.
    pub(crate) fn is_under_hold(&self, request: usize) -> bool {
        !self.takeover || self.mixed && request == 0
    }

    fn token(&self, request: usize) -> u8 {
        match request {
            0 | 1 if self.mutated(Mutant::TokenPerProcess) => 10,
            2 if self.mutated(Mutant::TokenPerProcess) => 11,
            _ => 10 + request as u8,
        }
    }

    /// The next stage of a request that has lost, while a copy of its claim may still be in flight.
    fn refused(&self, astray: bool) -> At {
        if astray && !self.mutated(Mutant::NoVoid) { At::Voiding } else { At::Refused }
    }

    fn expires_with_not_after(&self, message: &Message, request: usize) -> bool {
        message.from == request
            && match message.op {
                Op::Claim => true,
                Op::Replace { .. } => !self.mutated(Mutant::ReplaceWithoutNotAfter),
                _ => false,
            }
    }

    fn request_actions(&self, state: &State, i: usize, actions: &mut Vec<Action>) {
        let request = state.requests[i];
        let unanswered = |op| request.astray && !self.mutated(Mutant::NoVoid) && !state.in_flight(i, op);
        match request.at {
            At::Idle => actions.push(Action::Send(i)),
            At::Claiming(sent) | At::Replacing { sent, .. } => {
                if sent < self.sends {
                    actions.push(Action::SendAgain(i));
                }
                actions.push(Action::GiveUp(i));
            }
            At::Granted => {
                actions.push(Action::Run(i));
                if self.clean_failures {
                    actions.push(Action::FailCleanly(i));
                }
            }
            At::Ran => actions.push(Action::Send(i)),
            At::Completing(sent) | At::Releasing(sent) => {
                let op = if matches!(request.at, At::Completing(_)) {
                    AnsweredOp::Complete
                } else {
                    AnsweredOp::Release
                };
                if unanswered(op) {
                    actions.push(Action::GiveUp(i));
                }
                if sent < self.sends {
                    actions.push(Action::SendAgain(i));
                }
            }
            At::Voiding => {
                let on_its_way = |message: &Message| self.expires_with_not_after(message, i);
                let late = state.messages.iter().any(on_its_way);
                actions.push(if late { Action::PassNotAfter(i) } else { Action::Void(i) });
            }
            At::Voided | At::Answered { .. } | At::Refused | At::Crashed => {}
        }
        let alive = !matches!(request.at, At::Idle | At::Answered { .. } | At::Refused | At::Crashed);
        if alive && state.crashes < self.crashes {
            actions.push(Action::Crash(i));
        }
    }

    fn row_actions(&self, state: &State, row: Row, actions: &mut Vec<Action>) {
        let running = row.stage == Stage::Running;
        if running && !row.lease_over && state.expiries < self.expiries {
            actions.push(Action::LeasePasses);
        }
        let may_reconcile = match self.reconcile {
            Reconcile::Never => false,
            Reconcile::OwnerDead => self.owner_dead(state, row),
            Reconcile::OwnerAlive => true,
        };
        if running && row.lease_over && may_reconcile {
            actions.push(Action::Reconcile);
        }
        let counts = !row.aged && (!running || row.lease_over)
            || self.mutated(Mutant::ExpiryFromClaim) && !row.aged_since_claim;
        if counts && state.retentions < self.retentions {
            actions.push(Action::RetentionPasses);
        }
        if store::is_expired(self, state, row) || self.mutated(Mutant::PurgeRunning) && running {
            actions.push(Action::Purge);
        }
    }

    fn owner_of(&self, state: &State, row: Row) -> Option<usize> {
        (0..self.requests).find(|&i| state.requests[i].token == row.token)
    }

    fn owner_dead(&self, state: &State, row: Row) -> bool {
        self.owner_of(state, row)
            .is_none_or(|i| matches!(state.requests[i].at, At::Crashed | At::Refused | At::Answered { .. }))
    }

    fn send(&self, state: &mut State, i: usize) {
        if state.requests[i].at == At::Idle {
            state.requests[i].token = self.token(i);
            state.requests[i].at = At::Claiming(1);
            state.send(i, Op::Claim);
            return;
        }
        state.send(i, Op::Complete);
        state.requests[i].at = if self.mutated(Mutant::AnswerFirst) {
            At::Answered { outcome: i as u8 + 1, generation: state.generation }
        } else {
            At::Completing(1)
        };
    }

    fn send_again(&self, state: &mut State, i: usize) {
        let request = &mut state.requests[i];
        let op = match &mut request.at {
            At::Claiming(sent) => {
                *sent += 1;
                request.astray = true;
                if self.mutated(Mutant::TokenPerSend) {
                    request.token += 20;
                }
                Op::Claim
            }
            At::Replacing { sent, expected_token, expected_version } => {
                *sent += 1;
                request.astray = true;
                Op::Replace { expected_token: *expected_token, expected_version: *expected_version }
            }
            At::Completing(sent) => {
                *sent += 1;
                Op::Complete
            }
            At::Releasing(sent) => {
                *sent += 1;
                Op::Release
            }
            at => unreachable!("nothing is sent again at {at:?}"),
        };
        state.send(i, op);
    }

    fn give_up(&self, state: &mut State, i: usize) {
        let request = &mut state.requests[i];
        let claiming = matches!(request.at, At::Claiming(_));
        request.at = match self.mutant {
            Some(Mutant::StartOnUnknown) if claiming => At::Granted,
            Some(Mutant::NoVoid) if claiming => At::Refused,
            _ => {
                request.astray = true;
                At::Voiding
            }
        };
    }

    fn run(&self, state: &mut State, i: usize) {
        state.runs += 1;
        // The promises about a key end with its retention, also for an attempt that stood still for
        // so long.
        let Request { fence, granted_in, .. } = state.requests[i];
        if granted_in == state.generation {
            // An attempt under another policy that was granted earlier may be late: `hold` covers
            // later attempts only.
            let is_after = |held: u8| self.is_under_hold(i) || fence > held;
            state.broken.ran_after_hold |= state.ran_under_hold.is_some_and(is_after);
            if self.is_under_hold(i) {
                state.ran_under_hold = Some(fence);
            }
        }
        if self.fenced && fence < state.effect_fence {
            state.requests[i].at = At::Refused;
            return;
        }
        if self.fenced {
            state.effect_fence = fence;
            state.effect_by = i as u8 + 1;
        }
        state.requests[i].at = At::Ran;
    }

    fn receive(&self, state: &mut State, answer: Answer) {
        let i = answer.to;
        let request = state.requests[i];
        let at = match (request.at, answer.op, answer.reply) {
            (At::Claiming(_), AnsweredOp::Claim, Reply::Seen { token, version }) => {
                state.send(i, Op::Replace { expected_token: token, expected_version: version });
                At::Replacing { sent: 1, expected_token: token, expected_version: version }
            }
            (At::Claiming(_), AnsweredOp::Claim, Reply::Granted(fence))
            | (At::Replacing { .. }, AnsweredOp::Claim | AnsweredOp::Replace, Reply::Granted(fence)) => {
                state.requests[i].fence = fence;
                state.requests[i].granted_in = answer.generation;
                if let Some(told) = state.told.get_mut(usize::from(fence)) {
                    state.broken.fence_told_twice |= *told != 0 && *told != i as u8 + 1;
                    *told = i as u8 + 1;
                }
                At::Granted
            }
            (At::Replacing { sent, .. }, AnsweredOp::Replace, Reply::Changed) => {
                self.refused(sent > 1 || request.astray)
            }
            (At::Claiming(_), AnsweredOp::Claim, Reply::Done(outcome)) => {
                At::Answered { outcome, generation: answer.generation }
            }
            (At::Claiming(sent), AnsweredOp::Claim, _) => self.refused(sent > 1),
            (At::Completing(_), AnsweredOp::Complete, Reply::Stands) => {
                At::Answered { outcome: i as u8 + 1, generation: answer.generation }
            }
            (At::Completing(_), AnsweredOp::Complete, _) => At::Refused,
            (At::Releasing(_), AnsweredOp::Release, _) => self.refused(request.astray),
            (At::Voided, AnsweredOp::Void, _) => At::Refused,
            (at, ..) => at,
        };
        state.requests[i].at = at;
    }

    fn reconcile(&self, state: &mut State) {
        let owner = state.row.and_then(|row| self.owner_of(state, row));
        let happened = (state.runs > 0).then(|| owner.map_or(9, |i| i as u8 + 1));
        store::reconcile(state, happened);
    }

    /// A retention passes, which ends the promises about a key. But the retention has not begun for
    /// an attempt that may still act, and never begins for one under `hold` without an outcome.
    fn retention_passes(&self, state: &mut State) {
        state.retentions += 1;
        let Some(row) = &mut state.row else { return };
        let running = row.stage == Stage::Running;
        row.aged |= !running || row.lease_over;
        row.aged_since_claim = self.mutated(Mutant::ExpiryFromClaim);
        // A claim is refused before the record that it made can have expired: a released record is
        // kept for as long.
        let token = row.token;
        let early = self.mutated(Mutant::ReleasedExpiresEarly) && row.stage == Stage::Released;
        state.messages.retain(|message| {
            let is_claim = matches!(message.op, Op::Claim | Op::Replace { .. });
            early || !(is_claim && message.token == token)
        });
        if row.aged && !(running && row.hold) {
            state.generation += 1;
            (state.runs, state.outcomes, state.commits) = (0, 0, 0);
            state.ran_under_hold = None;
        }
    }

    /// The promise that this state breaks.
    pub(crate) fn violation(&self, state: &State) -> Option<&'static str> {
        let broken = state.broken;
        let running = state.row.is_some_and(|row| row.stage == Stage::Running);
        let single_steps = [
            (state.outcomes > 1, "two outcomes recorded"),
            (broken.ran_after_hold, "handler ran twice under hold"),
            (self.transactional && state.commits > 1, "two effects committed"),
            (broken.fence_not_rising, "fence not rising"),
            (broken.foreign_write, "write by one that is not the owner"),
            (broken.live_or_done_replaced, "live or done record replaced"),
            (broken.fence_told_twice, "one fence held by two attempts"),
            (broken.retired_token_granted, "released or voided token granted again"),
            (
                self.fenced && self.outcome_is_not_of_the_effect(state),
                "outcome is not of the effect that stands",
            ),
        ];
        single_steps
            .into_iter()
            .find_map(|(broken, name)| broken.then_some(name))
            .or_else(|| self.told_wrongly(state))
            .or_else(|| (running && self.stuck(state)).then_some("key held although nobody crashed"))
    }

    fn outcome_is_not_of_the_effect(&self, state: &State) -> bool {
        state.row.is_some_and(|row| {
            row.stage == Stage::Done && row.outcome != state.effect_by && row.token != store::OPERATOR
        })
    }

    fn told_wrongly(&self, state: &State) -> Option<&'static str> {
        let recorded = state.row.filter(|row| row.stage == Stage::Done).map(|row| row.outcome);
        let mut seen = [None; 4];
        for request in &state.requests[..self.requests] {
            let At::Answered { outcome, generation } = request.at else {
                continue;
            };
            let first = seen[usize::from(generation)].get_or_insert(outcome);
            if *first != outcome {
                return Some("two clients were told different outcomes");
            }
            if generation == state.generation && recorded != Some(outcome) {
                return Some("client was told an outcome that is not recorded");
            }
        }
        None
    }

    /// Returns `true` if a key ended up held under `hold` without a crash.
    fn stuck(&self, state: &State) -> bool {
        if state.crashes > 0 || self.takeover || state.generation > 0 {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.is_empty()
    }
}

impl Model for Config {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for i in 0..self.requests {
            self.request_actions(state, i, actions);
        }
        for (k, message) in state.messages.iter().enumerate() {
            // The order of two equal messages does not matter.
            if k == 0 || state.messages[k - 1] != *message {
                actions.extend([Action::Apply(k), Action::ApplyInVain(k)]);
            }
        }
        for (k, answer) in state.answers.iter().enumerate() {
            if k == 0 || state.answers[k - 1] != *answer {
                actions.push(Action::Receive(k));
            }
        }
        if let Some(row) = state.row {
            self.row_actions(state, row, actions);
        }
        if state.failovers < self.failovers && state.before_last_write.is_some() {
            actions.push(Action::Failover);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send(i) => self.send(&mut state, i),
            Action::SendAgain(i) => self.send_again(&mut state, i),
            Action::GiveUp(i) => self.give_up(&mut state, i),
            Action::Run(i) => self.run(&mut state, i),
            Action::FailCleanly(i) => {
                state.requests[i].at = At::Releasing(1);
                state.send(i, Op::Release);
            }
            Action::PassNotAfter(i) => {
                let late = |message: &Message| self.expires_with_not_after(message, i);
                let refused = |message: &Message| store::refuses_after_not_after(self, last, message);
                assert!(last.messages.iter().filter(|m| late(m)).all(refused), "a late claim was applied");
                state.messages.retain(|message| !late(message));
            }
            Action::Void(i) => {
                state.requests[i].at = At::Voided;
                state.send(i, Op::Void);
            }
            Action::Crash(i) => {
                state.requests[i].at = At::Crashed;
                state.crashes += 1;
            }
            Action::Apply(k) | Action::ApplyInVain(k) => {
                let message = state.messages.remove(k);
                let reply = store::apply(self, &mut state, message);
                if action == Action::Apply(k) {
                    state.answer(message.from, message.op, reply);
                }
            }
            Action::Receive(k) => {
                let answer = state.answers.remove(k);
                self.receive(&mut state, answer);
            }
            Action::LeasePasses => {
                state.row = state.row.map(|row| Row { lease_over: true, ..row });
                state.expiries += 1;
            }
            Action::Reconcile => self.reconcile(&mut state),
            Action::RetentionPasses => self.retention_passes(&mut state),
            Action::Purge => state.row = None,
            Action::Failover => {
                if let Some((row, commits)) = state.before_last_write.take() {
                    (state.row, state.commits) = (row, commits);
                    state.failovers += 1;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every promise holds", |config, state| config.violation(state).is_none())]
    }
}
