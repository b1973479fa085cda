//! The queue, with a committer that follows the directions of the test.
//!
//! - `additional`: workers with a connection on demand.
//! - `loads`: batches that are too large.
//! - `failures`: failures and tries.
//! - `suspects`: operations that are sent alone.
//! - `withdrawals`: operations that cannot be sent.
//! - `endings`: workers that end.

mod additional;
mod endings;
mod failures;
mod loads;
mod suspects;
mod withdrawals;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::queue::{LANE_ROOM, ROOM_WAIT};
use super::suspects::MAX_SUSPECTS;
use super::worker::{MAX_PAUSE, MAX_TRIES, MAX_TRYING};
use super::*;

/// An operation of a test.
#[derive(Debug, Clone, Copy)]
struct Question {
    number: u32,
    weight: usize,
    apart: bool,
    /// Set if every batch with it is refused.
    bad: bool,
    /// Set if every batch with it fails, without a sign that it is the cause.
    poison: bool,
    /// The size of its answer.
    answer_bytes: usize,
}

fn plain(number: u32) -> Question {
    Question { number, weight: 0, apart: false, bad: false, poison: false, answer_bytes: 0 }
}

/// The fate of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Again,
    /// Applied or not, without an answer.
    Lost {
        applied: bool,
    },
    Refused,
    Panic,
    /// Not applied, and without an answer in time.
    Slow,
}

/// The stage on which tests observe the committer and direct it.
#[derive(Clone)]
struct Stage(Arc<Inner>);

struct Inner {
    /// The batches that were sent, as the numbers of their operations.
    sent: watch::Sender<Vec<Vec<u32>>>,
    /// The applied operations in order, with repeats.
    applied: Mutex<Vec<u32>>,
    /// The number of requested connections.
    connects: Mutex<u32>,
    /// The number of additional connections that were closed.
    disconnects: Mutex<u32>,
    /// Set if the connection of the next additional worker that looks is broken.
    broken: Mutex<bool>,
    /// The fates of the next commits; later ones succeed.
    fates: Mutex<VecDeque<Fate>>,
    /// The delay of the next connection.
    delay: Mutex<Duration>,
    /// The errors of the next connections; later ones succeed.
    unreachable: Mutex<VecDeque<StoreError>>,
    /// The gate that lets commits pass one by one, if there is one.
    gate: Option<Semaphore>,
}

impl Stage {
    fn new(gate: Option<Semaphore>) -> Self {
        Self(Arc::new(Inner {
            sent: watch::Sender::new(Vec::new()),
            applied: Mutex::default(),
            connects: Mutex::default(),
            disconnects: Mutex::default(),
            broken: Mutex::default(),
            fates: Mutex::default(),
            delay: Mutex::default(),
            unreachable: Mutex::default(),
            gate,
        }))
    }

    /// A stage on which commits succeed at once, unless the test directs otherwise.
    fn open() -> (Self, Batcher<Self>) {
        let stage = Self::new(None);
        (stage.clone(), Batcher::start(vec![stage], Vec::new()))
    }

    /// A stage whose first commit has begun, with question 0, and waits for [`Stage::go_on`].
    async fn busy() -> (Self, Batcher<Self>, Pending<Self>) {
        let stage = Self::new(Some(Semaphore::new(0)));
        let batcher = Batcher::start(vec![stage.clone()], Vec::new());
        let first = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
        stage.0.sent.subscribe().wait_for(|sent| !sent.is_empty()).await.unwrap();
        (stage, batcher, first)
    }

    /// Lets one commit pass.
    fn go_on_once(&self) {
        self.0.gate.as_ref().expect("there is a gate").add_permits(1);
    }

    fn go_on(&self) {
        self.0.gate.as_ref().expect("there is a gate").add_permits(1_000);
    }

    fn fates(&self, fates: impl IntoIterator<Item = Fate>) {
        self.0.fates.lock().unwrap().extend(fates);
    }

    fn unreachable(&self, errors: impl IntoIterator<Item = StoreError>) {
        self.0.unreachable.lock().unwrap().extend(errors);
    }

    fn sent(&self) -> Vec<Vec<u32>> {
        self.0.sent.borrow().clone()
    }

    fn applied(&self) -> Vec<u32> {
        self.0.applied.lock().unwrap().clone()
    }

    /// As many answers as fit together.
    fn replies(&self, questions: &[&Question]) -> Vec<Reply<u32>> {
        let (mut bytes, mut brought) = (0, Vec::new());
        let reply = |question: &&Question| {
            let is_brought = brought.contains(&question.number);
            if !is_brought && bytes > 0 && bytes + question.answer_bytes > MAX_ANSWER_BYTES {
                return Reply::Later(question.answer_bytes);
            }
            if !is_brought {
                bytes += question.answer_bytes;
                brought.push(question.number);
            }
            Reply::Answer(Ok(question.number * 10))
        };
        questions.iter().map(reply).collect()
    }
}

impl Committer for Stage {
    type Question = Question;
    type Answer = u32;
    type Subject = u32;

    fn subject(question: &Question) -> u32 {
        question.number
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        *self.0.connects.lock().unwrap() += 1;
        let delay = std::mem::take(&mut *self.0.delay.lock().unwrap());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.0.unreachable.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    async fn is_connected(&mut self) -> bool {
        !std::mem::take(&mut *self.0.broken.lock().unwrap())
    }

    fn disconnect(&mut self) {
        *self.0.disconnects.lock().unwrap() += 1;
    }

    fn weight(question: &Question) -> usize {
        question.weight
    }

    fn answer_weight(_: &Question) -> usize {
        0
    }

    fn size(question: &Question, _: &u32) -> usize {
        question.answer_bytes
    }

    fn is_apart(question: &Question) -> bool {
        question.apart
    }

    async fn commit(&mut self, questions: &[&Question]) -> Result<Vec<Reply<u32>>, Failed> {
        let numbers: Vec<u32> = questions.iter().map(|question| question.number).collect();
        self.0.sent.send_modify(|sent| sent.push(numbers.clone()));
        if let Some(gate) = &self.0.gate {
            gate.acquire().await.unwrap().forget();
        }
        let refused = || Failed::Refused(StoreError::refused("one of them is bad"));
        if questions.iter().any(|question| question.bad) {
            return Err(refused());
        }
        if questions.iter().any(|question| question.poison) {
            return Err(Failed::Again(StoreError::unavailable("something failed")));
        }
        let apply = || self.0.applied.lock().unwrap().extend(&numbers);
        let fate = self.0.fates.lock().unwrap().pop_front();
        match fate {
            None => apply(),
            Some(Fate::Again) => return Err(Failed::Again(StoreError::unavailable("busy"))),
            Some(Fate::Refused) => return Err(refused()),
            Some(Fate::Panic) => panic!("on purpose"),
            Some(Fate::Slow) => return Err(Failed::Slow(StoreError::unknown("no answer in time"))),
            Some(Fate::Lost { applied }) => {
                if applied {
                    apply();
                }
                return Err(Failed::Lost(StoreError::unknown("gone")));
            }
        }
        Ok(self.replies(questions))
    }
}

/// Queues all of these, and returns their answers to come.
async fn ask(batcher: &Batcher<Stage>, lane: Lane, questions: &[Question]) -> Vec<Pending<Stage>> {
    let mut pending = Vec::new();
    for question in questions {
        pending.push(batcher.ask(lane, || *question).await.unwrap());
    }
    pending
}

fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<Question> {
    numbers.into_iter().map(plain).collect()
}

async fn answers(pending: Vec<Pending<Stage>>) -> Vec<u32> {
    let mut answers = Vec::new();
    for pending in pending {
        answers.push(pending.answer().await.unwrap());
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn a_question_alone_goes_at_once() {
    let (stage, batcher) = Stage::open();
    let began = Instant::now();
    for number in 1..4 {
        let pending = batcher.ask(Lane::Claim, || plain(number)).await.unwrap();
        assert_eq!(pending.answer().await.unwrap(), number * 10);
    }
    assert_eq!(stage.sent(), [[1], [2], [3]]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn operations_queued_during_a_batch_form_the_next_and_owners_go_first() {
    let (stage, batcher, first) = Stage::busy().await;
    let claims = ask(&batcher, Lane::Claim, &numbered([1, 2])).await;
    let owners = ask(&batcher, Lane::Owner, &numbered([3, 4])).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(claims).await, [10, 20]);
    assert_eq!(answers(owners).await, [30, 40]);
    assert_eq!(stage.sent(), [vec![0], vec![3, 4, 1, 2]]);
}

/// The batch that follows one whose callers return at once with 11 and 12, while these wait
/// already.
async fn next_batch(waiting: std::ops::Range<u32>) -> Vec<u32> {
    let (stage, batcher, _first) = Stage::busy().await;
    let batcher = Arc::new(batcher);
    for number in [1, 2] {
        let batcher = Arc::clone(&batcher);
        tokio::spawn(async move {
            batcher.ask(Lane::Claim, || plain(number)).await.unwrap().answer().await.unwrap();
            batcher.ask(Lane::Claim, || plain(10 + number)).await.unwrap().answer().await.unwrap();
        });
    }
    let mut sent = stage.0.sent.subscribe();
    tokio::task::yield_now().await;
    stage.go_on_once();
    sent.wait_for(|sent| sent.len() == 2).await.unwrap();
    let _waiting = ask(&batcher, Lane::Claim, &numbered(waiting)).await;
    stage.go_on_once();
    sent.wait_for(|sent| sent.len() == 3).await.unwrap();
    let sent = stage.sent();
    assert_eq!(sent[1], [1, 2]);
    sent[2].clone()
}

#[tokio::test]
async fn few_operations_wait_for_callers_that_return_at_once_and_many_do_not() {
    assert_eq!(next_batch(20..22).await, [20, 21, 11, 12]);
    assert_eq!(next_batch(20..28).await, (20..28).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_is_unavailable_after_a_while_and_leaves_the_other_free() {
    let (stage, batcher, first) = Stage::busy().await;
    let room = LANE_ROOM as u32;
    let claims = ask(&batcher, Lane::Claim, &numbered(1..room)).await;

    let began = Instant::now();
    let refused = batcher.ask(Lane::Claim, || plain(room)).await.err().expect("there is no room");
    assert!(refused.is_transient() && !refused.is_unknown(), "{refused}");
    assert_eq!(began.elapsed(), ROOM_WAIT);

    let owner = batcher.ask(Lane::Owner, || plain(room + 1)).await.unwrap();
    assert_eq!(began.elapsed(), ROOM_WAIT);

    // An operation that waits for room gets it as soon as there is some.
    let (late, ()) = tokio::join!(batcher.ask(Lane::Claim, || plain(room + 2)), async { stage.go_on() });
    assert_eq!(late.unwrap().answer().await.unwrap(), (room + 2) * 10);
    assert_eq!(began.elapsed(), ROOM_WAIT);
    assert_eq!(owner.answer().await.unwrap(), (room + 1) * 10);
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(claims).await.len(), LANE_ROOM - 1);
    assert_eq!(stage.sent()[1][0], room + 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_its_limits() {
    let (stage, batcher, first) = Stage::busy().await;
    let many = ask(&batcher, Lane::Claim, &numbered(1..=1_200)).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(many).await, (1..=1_200).map(|number| number * 10).collect::<Vec<_>>());
    let sizes: Vec<usize> = stage.sent().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 512, 512, 176]);

    let (stage, batcher, first) = Stage::busy().await;
    let mib = |number, mib: usize| Question { weight: mib << 20, ..plain(number) };
    let heavy = [mib(1, 3), mib(2, 3), mib(3, 3), mib(4, 5), mib(5, 16), mib(6, 1), mib(7, 7), mib(8, 1)];
    let heavy = ask(&batcher, Lane::Owner, &heavy).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(heavy).await.len(), 8);
    assert_eq!(stage.sent(), [vec![0], vec![1, 2], vec![3, 4], vec![5], vec![6, 7], vec![8]]);
}

#[tokio::test(start_paused = true)]
async fn questions_that_are_apart_go_by_themselves() {
    let (stage, batcher, first) = Stage::busy().await;
    let apart = |number| Question { apart: true, ..plain(number) };
    let asked = [plain(1), apart(2), plain(3), Question { bad: true, ..apart(4) }, apart(5)];
    let mut asked = ask(&batcher, Lane::Claim, &asked).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    asked.remove(3).answer().await.expect_err("it is bad");
    assert_eq!(answers(asked).await, [10, 20, 30, 50]);
    assert_eq!(stage.sent()[..3], [vec![0], vec![1, 3], vec![2, 4, 5]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_takes_along_what_was_not_sent_and_nothing_else() {
    let (stage, batcher, first) = Stage::busy().await;
    let mut later = ask(&batcher, Lane::Claim, &numbered([1, 2, 3])).await;
    drop(first);
    drop(later.remove(1));
    stage.go_on();
    assert_eq!(answers(later).await, [10, 30]);
    assert_eq!(stage.sent(), [vec![0], vec![1, 3]]);
    assert_eq!(stage.applied(), [0, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_answers_what_it_has_and_takes_nothing_more() {
    let (stage, batcher, first) = Stage::busy().await;
    let queued = ask(&batcher, Lane::Claim, &numbered([1, 2])).await;
    let closing = async {
        let refused = async {
            tokio::task::yield_now().await;
            let refused = batcher.ask(Lane::Owner, || plain(3)).await.err().expect("it is closed");
            assert!(refused.is_transient() && !refused.is_unknown(), "{refused}");
            stage.go_on();
        };
        tokio::join!(batcher.close(), refused)
    };
    closing.await;
    // The answers are there already: the close has waited for them.
    assert_eq!(stage.applied(), [0, 1, 2]);
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(queued).await, [10, 20]);

    let (stage, batcher, first) = Stage::busy().await;
    let queued = ask(&batcher, Lane::Claim, &numbered([1, 2])).await;
    drop(batcher);
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(queued).await, [10, 20]);
}

#[tokio::test]
async fn a_batch_that_takes_long_does_not_hold_up_others() {
    let stage = Stage::new(Some(Semaphore::new(0)));
    let batcher = Batcher::start(vec![stage.clone(), stage.clone()], Vec::new());
    let first = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 1).await.unwrap();
    let second = batcher.ask(Lane::Claim, || plain(1)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 2).await.unwrap();
    stage.go_on();
    for pending in [first, second] {
        pending.answer().await.unwrap();
    }
    assert_eq!(stage.sent(), [[0], [1]]);
}

#[tokio::test]
async fn what_is_asked_of_one_is_done_in_order() {
    let stage = Stage::new(Some(Semaphore::new(0)));
    let batcher = Batcher::start(vec![stage.clone(), stage.clone()], Vec::new());
    let first = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 1).await.unwrap();
    let again = batcher.ask(Lane::Owner, || plain(0)).await.unwrap();
    let other = batcher.ask(Lane::Claim, || plain(1)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 2).await.unwrap();
    assert_eq!(stage.sent(), [[0], [1]], "the other connection leaves alone whom the first is busy with");
    stage.go_on();
    for pending in [first, again, other] {
        pending.answer().await.unwrap();
    }
    assert_eq!(stage.sent(), [[0], [1], [0]]);
}
