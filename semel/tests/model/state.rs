//! A state of the model: one key, the requests that want it, and what is on its way between them.

/// How many requests there can be.
pub const REQUESTS: usize = 3;

/// Everything there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub row: Option<Row>,
    /// What a failover would bring back: the row and the committed effects before the last write.
    pub before_last_write: Option<(Option<Row>, u8)>,
    /// On their way to the store, sorted: any of them can arrive next.
    pub messages: Vec<Message>,
    /// On their way back, sorted.
    pub answers: Vec<Answer>,
    pub requests: [Request; REQUESTS],
    /// How often the handler was started, and its effect committed, in this life of the key.
    pub runs: u8,
    pub commits: u8,
    pub outcomes: u8,
    /// How often the key was purged.
    pub generation: u8,
    pub expiries: u8,
    pub crashes: u8,
    pub failovers: u8,
    pub last_fence: u8,
    pub broken: Broken,
    /// The highest fence that a fenced effect has seen, and whose it was.
    pub effect_fence: u8,
    pub effect_by: u8,
    /// Who was told of each fence.
    pub told: [u8; 8],
    /// Tokens that were released or voided, one bit for each request; only kept if the configuration asks.
    pub retired: u8,
}

/// Promises that a single step can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken {
    pub fence_not_rising: bool,
    pub foreign_write: bool,
    pub fence_told_twice: bool,
    pub live_or_done_replaced: bool,
    pub retired_token_granted: bool,
}

/// The record of the key, as much of it as decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    pub token: u8,
    pub fence: u8,
    pub stage: Stage,
    pub lease_over: bool,
    /// Who made the outcome, counted from 1.
    pub outcome: u8,
    pub version: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Running,
    Done,
    Released,
}

/// One attempt of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    pub at: At,
    pub token: u8,
    pub fence: u8,
    /// Whether a copy of its claim may still be on its way.
    pub astray: bool,
}

/// Where a request stands; the number is how often it has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
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
    /// Its client has been refused or has gone; a background task will void its token.
    Voiding,
    Voided,
    /// Its client was told this outcome, in this generation.
    Answered {
        outcome: u8,
        generation: u8,
    },
    Refused,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Claim,
    Replace {
        expected_token: u8,
        expected_version: u8,
    },
    Complete,
    Release,
    Void,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    pub op: Op,
    pub from: usize,
    pub token: u8,
    pub fence: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    pub to: usize,
    pub op: AnsweredOp,
    pub reply: Reply,
    pub generation: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnsweredOp {
    Claim,
    Replace,
    Complete,
    Release,
    Void,
}

/// What the verbs make of the store's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
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
    pub fn answered(self) -> AnsweredOp {
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
    pub fn new() -> Self {
        Self {
            row: None,
            before_last_write: None,
            messages: Vec::new(),
            answers: Vec::new(),
            requests: [Request {
                at: At::Idle,
                token: 0,
                fence: 0,
                astray: false,
            }; REQUESTS],
            runs: 0,
            commits: 0,
            outcomes: 0,
            generation: 0,
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

    pub fn send(&mut self, from: usize, op: Op) {
        let Request { token, fence, .. } = self.requests[from];
        let fence = if matches!(op, Op::Complete | Op::Release) {
            fence
        } else {
            0
        };
        self.messages.push(Message {
            op,
            from,
            token,
            fence,
        });
        self.messages.sort();
    }

    pub fn answer(&mut self, to: usize, op: Op, reply: Reply) {
        let generation = self.generation;
        self.answers.push(Answer {
            to,
            op: op.answered(),
            reply,
            generation,
        });
        self.answers.sort();
    }

    /// Whether a message or an answer of this kind is on its way for this request.
    pub fn in_flight(&self, of: usize, op: AnsweredOp) -> bool {
        self.messages
            .iter()
            .any(|message| message.from == of && message.op.answered() == op)
            || self
                .answers
                .iter()
                .any(|answer| answer.to == of && answer.op == op)
    }
}
