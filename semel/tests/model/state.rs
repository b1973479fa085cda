//! A state of the model: one key, its requests, and the messages between them.

/// The largest number of requests.
pub(crate) const REQUESTS: usize = 3;

/// The whole state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) row: Option<Row>,
    /// The state that a failover would restore: the row and the committed effects before the last
    /// write.
    pub(crate) before_last_write: Option<(Option<Row>, u8)>,
    /// The messages in flight to the store, sorted: any of them can arrive next.
    pub(crate) messages: Vec<Message>,
    /// The answers in flight, sorted.
    pub(crate) answers: Vec<Answer>,
    pub(crate) requests: [Request; REQUESTS],
    /// The number of starts of the handler, and of its committed effects, in this life of the key.
    pub(crate) runs: u8,
    pub(crate) commits: u8,
    pub(crate) outcomes: u8,
    /// The number of times that the key's retention was over, which ends the promises about it.
    pub(crate) generation: u8,
    /// The number of retentions that have passed, with or without a consequence.
    pub(crate) retentions: u8,
    /// The fence of the attempt under `hold` that has run in this life of the key.
    pub(crate) ran_under_hold: Option<u8>,
    pub(crate) expiries: u8,
    pub(crate) crashes: u8,
    pub(crate) failovers: u8,
    pub(crate) last_fence: u8,
    pub(crate) broken: Broken,
    /// The highest fence that a fenced effect has seen, and its attempt.
    pub(crate) effect_fence: u8,
    pub(crate) effect_by: u8,
    /// The request that was told each fence.
    pub(crate) told: [u8; 8],
    /// The tokens that were released or voided, one bit for each request; only kept if the
    /// configuration asks.
    pub(crate) retired: u8,
}

/// The promises that a single step can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Broken {
    pub(crate) fence_not_rising: bool,
    pub(crate) foreign_write: bool,
    pub(crate) fence_told_twice: bool,
    pub(crate) live_or_done_replaced: bool,
    pub(crate) ran_after_hold: bool,
    pub(crate) retired_token_granted: bool,
}

/// The record of the key, reduced to the parts that matter for decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) token: u8,
    pub(crate) fence: u8,
    pub(crate) stage: Stage,
    pub(crate) lease_over: bool,
    /// Set if the attempt runs, or ran, under `hold`.
    pub(crate) hold: bool,
    /// Set if a retention has passed since the record was settled, or since its lease was over.
    pub(crate) aged: bool,
    /// Set if a retention has passed since the claim; only kept for the mutant that counts from
    /// there.
    pub(crate) aged_since_claim: bool,
    /// The request that made the outcome, counted from 1.
    pub(crate) outcome: u8,
    pub(crate) version: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Running,
    Done,
    Released,
}

/// One attempt of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) at: At,
    pub(crate) token: u8,
    pub(crate) fence: u8,
    /// Set if a copy of its claim may still be in flight.
    pub(crate) astray: bool,
    /// The life of the key in which it was granted.
    pub(crate) granted_in: u8,
}

/// The stage of a request; the number counts its sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum At {
    Idle,
    Claiming(u8),
    Replacing {
        sent: u8,
        expected_token: u8,
        expected_version: u8,
    },
    Granted,
    Ran,
    Completing(u8),
    Releasing(u8),
    /// The client has been refused or has disconnected; a background task will void the token.
    Voiding,
    Voided,
    /// The client got this outcome, in this generation.
    Answered {
        outcome: u8,
        generation: u8,
    },
    Refused,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Op {
    Claim,
    Replace { expected_token: u8, expected_version: u8 },
    Complete,
    Release,
    Void,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) op: Op,
    pub(crate) from: usize,
    pub(crate) token: u8,
    pub(crate) fence: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) to: usize,
    pub(crate) op: AnsweredOp,
    pub(crate) reply: Reply,
    pub(crate) generation: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AnsweredOp {
    Claim,
    Replace,
    Complete,
    Release,
    Void,
}

/// The result that the verbs derive from the store's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reply {
    Granted(u8),
    Done(u8),
    Running,
    HeldOrLate,
    /// The record may be replaced if it still has this token and version.
    Seen {
        token: u8,
        version: u8,
    },
    Changed,
    Stands,
    Lost,
}

impl Op {
    pub(crate) fn answered(self) -> AnsweredOp {
        match self {
            Self::Claim => AnsweredOp::Claim,
            Self::Replace { .. } => AnsweredOp::Replace,
            Self::Complete => AnsweredOp::Complete,
            Self::Release => AnsweredOp::Release,
            Self::Void => AnsweredOp::Void,
        }
    }
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            row: None,
            before_last_write: None,
            messages: Vec::new(),
            answers: Vec::new(),
            requests: [Request { at: At::Idle, token: 0, fence: 0, astray: false, granted_in: 0 }; REQUESTS],
            runs: 0,
            commits: 0,
            outcomes: 0,
            generation: 0,
            retentions: 0,
            ran_under_hold: None,
            expiries: 0,
            crashes: 0,
            failovers: 0,
            last_fence: 0,
            broken: Broken::default(),
            effect_fence: 0,
            effect_by: 0,
            told: [0; 8],
            retired: 0,
        }
    }

    pub(crate) fn send(&mut self, from: usize, op: Op) {
        let Request { token, fence, .. } = self.requests[from];
        let fence = if matches!(op, Op::Complete | Op::Release) { fence } else { 0 };
        self.messages.push(Message { op, from, token, fence });
        self.messages.sort();
    }

    pub(crate) fn answer(&mut self, to: usize, op: Op, reply: Reply) {
        // An expired record still belongs to the previous life.
        let is_over = self.row.is_some_and(|row| row.aged && row.stage != Stage::Running);
        let generation = self.generation - u8::from(is_over && reply == Reply::Stands);
        self.answers.push(Answer { to, op: op.answered(), reply, generation });
        self.answers.sort();
    }

    /// Returns `true` if a message or an answer of this kind is in flight for this request.
    pub(crate) fn in_flight(&self, of: usize, op: AnsweredOp) -> bool {
        self.messages.iter().any(|message| message.from == of && message.op.answered() == op)
            || self.answers.iter().any(|answer| answer.to == of && answer.op == op)
    }
}
