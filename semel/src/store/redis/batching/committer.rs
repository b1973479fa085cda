//! The committer of Redis: it sends batches over one connection at a time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use redis::{Cmd, Pipeline, ServerErrorKind, Value, cmd};
use tokio::time::timeout;

use super::scripts;
use super::session::{End, Session, within};
use crate::protocol::answer::Remembered;
use crate::store::redis::address::Address;
use crate::store::redis::errors::{self, Elsewhere};
use crate::store::redis::options::RedisOptions;
use crate::store::shared::group_commit::{self, Failed, Reply};
use crate::words::error::StoreError;
use crate::words::record::Record;
use crate::words::time::Timestamp;

/// One command about one name.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) command: Arc<Cmd>,
    /// The subject of the command: commands about the same subject are answered in order.
    pub(crate) subject: u64,
    /// Set if this server is asked only because another server redirected the command while the
    /// slot moves.
    pub(crate) is_asking: bool,
    /// The number of bytes that it reads, if those are many. All equal questions of one batch share
    /// the answer.
    pub(crate) answer_bytes: usize,
}

impl Question {
    fn is_same(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.is_asking == other.is_asking
            && (Arc::ptr_eq(&self.command, &other.command)
                || self.command.get_packed_command() == other.command.get_packed_command())
    }
}

/// The reply of a server to one command.
pub(crate) enum Said {
    Answer(Value),
    Large(Arc<Large>),
    Elsewhere(Elsewhere),
}

impl Said {
    /// A copy of the reply for another caller, unless it answers one caller alone.
    fn shared(&self) -> Option<Self> {
        match self {
            Self::Answer(_) => None,
            Self::Large(large) => Some(Self::Large(Arc::clone(large))),
            Self::Elsewhere(elsewhere) => Some(Self::Elsewhere(elsewhere.clone())),
        }
    }
}

/// A large answer, shared by the callers that asked the same question.
pub(crate) struct Large {
    pub(crate) value: Value,
    /// The record in it, once one of the callers has decoded it.
    pub(crate) record: OnceLock<Result<(Timestamp, Option<Record>), StoreError>>,
    /// The same for an entry of a hot store.
    pub(crate) remembered: OnceLock<Option<Remembered>>,
}

impl Large {
    fn new(value: Value) -> Self {
        Self { value, record: OnceLock::new(), remembered: OnceLock::new() }
    }
}

/// A committer: it sends a batch over one connection as a pipeline of commands, each of which is
/// applied on its own.
pub(crate) struct Committer {
    options: Arc<RedisOptions>,
    /// The server to which the committer belongs; `None` for the one that the options lead to.
    address: Option<Address>,
    session: Option<Session>,
    /// The other end of a lost connection, until it is known to be gone.
    lost: Option<End>,
}

impl Committer {
    pub(crate) fn new(options: Arc<RedisOptions>, address: Option<Address>) -> Self {
        Self { options, address, session: None, lost: None }
    }

    fn give_up(&mut self) {
        if let Some(session) = self.session.take() {
            self.lost = Some(session.into_end());
        }
    }
}

impl group_commit::Committer for Committer {
    type Question = Question;
    type Answer = Said;
    type Subject = u64;

    fn subject(question: &Question) -> u64 {
        question.subject
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        if self.session.is_some() {
            return Ok(());
        }
        let mut session = match &self.address {
            Some(address) => Session::at(&self.options, address).await?,
            None => Session::open(&self.options).await?,
        };
        if let Some(lost) = &self.lost {
            let address = session.address.clone();
            within(self.options.timeout, &address, session.bury(lost)).await?;
            self.lost = None;
        }
        self.session = Some(session);
        Ok(())
    }

    async fn is_connected(&mut self) -> bool {
        self.session.is_some()
    }

    fn disconnect(&mut self) {
        self.session = None;
    }

    fn weight(question: &Question) -> usize {
        question
            .command
            .args_iter()
            .map(|arg| if let redis::Arg::Simple(bytes) = arg { bytes.len() } else { 0 })
            .sum()
    }

    fn answer_weight(question: &Question) -> usize {
        question.answer_bytes
    }

    fn size(question: &Question, said: &Said) -> usize {
        match said {
            Said::Answer(value) => size(value),
            Said::Large(_) => question.answer_bytes,
            Said::Elsewhere(_) => 0,
        }
    }

    fn is_apart(_: &Question) -> bool {
        false
    }

    async fn commit(&mut self, questions: &[&Question]) -> Result<Vec<Reply<Said>>, Failed> {
        let Some(session) = &mut self.session else {
            return Err(Failed::Again(StoreError::unavailable("there is no connection to Redis")));
        };
        let distinct = Distinct::of(questions);
        let questions = distinct.as_ref().map_or(questions, |distinct| &distinct.questions);
        let sent = timeout(self.options.timeout, exchange(session, questions, &self.options));
        match sent.await {
            Ok(Ok(batch)) => {
                if batch.is_demoted {
                    // This server no longer accepts writes; another one does, now or soon.
                    self.session = None;
                }
                Ok(match distinct {
                    Some(distinct) => distinct.replies(batch.answers),
                    None => batch.answers.into_iter().map(Reply::Answer).collect(),
                })
            }
            Ok(Err(error)) => {
                let lost = format!("the connection to Redis at {} was lost", session.address);
                self.give_up();
                Err(Failed::Lost(StoreError::unavailable(lost).with_source(error)))
            }
            Err(_) => {
                let silent =
                    format!("Redis at {} did not answer within {:?}", session.address, self.options.timeout);
                self.give_up();
                Err(Failed::Slow(StoreError::unavailable(silent)))
            }
        }
    }
}

/// The number of bytes in a reply.
fn size(value: &Value) -> usize {
    match value {
        Value::BulkString(bytes) => bytes.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        _ => 0,
    }
}

struct Batch {
    answers: Vec<Result<Said, StoreError>>,
    /// Set if the server has become a replica.
    is_demoted: bool,
}

/// Sends the commands, and once more those for which a script was missing.
async fn exchange(
    session: &mut Session,
    questions: &[&Question],
    options: &RedisOptions,
) -> Result<Batch, redis::RedisError> {
    let mut answers = ask(session, questions.iter().copied(), Vec::new()).await?;
    let missing: Vec<usize> = (0..answers.len()).filter(|at| lacks_script(&answers[*at])).collect();
    if !missing.is_empty() {
        let load = scripts::all().map(|script| script.load()).into();
        let again = ask(session, missing.iter().map(|at| questions[*at]), load).await?;
        for (at, answer) in missing.into_iter().zip(again) {
            answers[at] = answer;
        }
    }
    let replicas = options.replicas;
    let acknowledged = if replicas > 0 { wait(session, options).await? } else { 0 };
    let is_demoted = answers.iter().any(|answer| refusal(answer) == Some(ServerErrorKind::ReadOnly));
    let answers = answers.into_iter().map(|answer| match answer {
        Value::ServerError(error) => errors::of_server(&error, &session.address).map(Said::Elsewhere),
        _ if acknowledged < u64::from(replicas) => Err(StoreError::unknown(format!(
            "{acknowledged} of {replicas} replicas of Redis at {} have received the write",
            session.address
        ))),
        answer => Ok(Said::Answer(answer)),
    });
    let share = |(said, question): (_, &&Question)| match said {
        Ok(Said::Answer(value)) if question.answer_bytes > 0 => Ok(Said::Large(Arc::new(Large::new(value)))),
        said => said,
    };
    Ok(Batch { answers: answers.zip(questions).map(share).collect(), is_demoted })
}

/// The commands of a batch without those that request the same large answer as an earlier one.
struct Distinct<'q> {
    questions: Vec<&'q Question>,
    /// For each command of the batch, the place of the one that stands for it.
    places: Vec<usize>,
}

impl<'q> Distinct<'q> {
    /// `None` if no command requests a large answer, as in most batches.
    fn of(all: &[&'q Question]) -> Option<Self> {
        if all.iter().all(|question| question.answer_bytes == 0) {
            return None;
        }
        let mut questions: Vec<&Question> = Vec::new();
        // The first command of each subject is enough: there is hardly ever another one about it.
        let mut large: HashMap<u64, usize> = HashMap::new();
        let mut places = Vec::with_capacity(all.len());
        for question in all {
            let first = large.get(&question.subject).filter(|at| questions[**at].is_same(question));
            let place = first.copied().unwrap_or(questions.len());
            if place == questions.len() {
                questions.push(question);
            }
            if question.answer_bytes > 0 {
                large.entry(question.subject).or_insert(place);
            }
            places.push(place);
        }
        Some(Self { questions, places })
    }

    fn replies(self, answers: Vec<Result<Said, StoreError>>) -> Vec<Reply<Said>> {
        let mut answers: Vec<_> = answers.into_iter().map(Some).collect();
        let reply = |place: usize| {
            let answer = answers.get_mut(place).and_then(|answer| match answer {
                Some(Ok(said)) => said.shared().map(Ok).or_else(|| answer.take()),
                Some(Err(error)) => Some(Err(error.clone())),
                None => None,
            });
            let unanswered = || Err(StoreError::unknown("Redis left a command unanswered"));
            Reply::Answer(answer.unwrap_or_else(unanswered))
        };
        self.places.into_iter().map(reply).collect()
    }
}

/// Sends questions after other commands, and returns the answers to the questions.
async fn ask(
    session: &mut Session,
    questions: impl Iterator<Item = &Question>,
    before: Vec<Cmd>,
) -> Result<Vec<Value>, redis::RedisError> {
    let mut pipeline = Pipeline::new();
    let mut wanted = vec![false; before.len()];
    for command in before {
        pipeline.add_command(command);
    }
    for question in questions {
        if question.is_asking {
            pipeline.add_command(cmd("ASKING"));
            wanted.push(false);
        }
        pipeline.add_command((*question.command).clone());
        wanted.push(true);
    }
    let answers = session.send(&pipeline).await?;
    Ok(answers.into_iter().zip(wanted).filter_map(|(answer, wanted)| wanted.then_some(answer)).collect())
}

/// The number of replicas that have everything that this server has done so far, waiting until it
/// is as high as required.
async fn wait(session: &mut Session, options: &RedisOptions) -> Result<u64, redis::RedisError> {
    let mut wait = Pipeline::new();
    // The reply has to come before the whole exchange is given up.
    wait.cmd("WAIT").arg(options.replicas).arg((options.timeout / 2).as_millis() as u64);
    let answer = session.send(&wait).await?.into_iter().next();
    Ok(match answer {
        Some(Value::Int(count)) => count.unsigned_abs(),
        _ => 0,
    })
}

fn refusal(answer: &Value) -> Option<ServerErrorKind> {
    if let Value::ServerError(error) = answer { error.kind() } else { None }
}

fn lacks_script(answer: &Value) -> bool {
    refusal(answer) == Some(ServerErrorKind::NoScript)
}
