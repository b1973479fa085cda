//! One server.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::address::Address;
use super::batching::committer::{Committer, Question, Said};
use super::options::RedisOptions;
use super::parse;
use crate::store::shared::group_commit::{Batcher, Lane};
use crate::store::shared::server_clock::ServerClock;
use crate::words::error::StoreError;
use crate::words::time::Timestamp;

/// A server, with its queue and its clock.
pub(super) struct Node {
    pub(super) batcher: Batcher<Committer>,
    pub(super) clock: ServerClock,
}

impl Node {
    pub(super) fn start(options: &Arc<RedisOptions>, address: Option<Address>) -> Arc<Self> {
        let committer = |_| Committer::new(Arc::clone(options), address.clone());
        let batcher = Batcher::start((0..options.connections).map(committer).collect(), Vec::new());
        Arc::new(Self { batcher, clock: ServerClock::default() })
    }

    pub(super) async fn say(&self, lane: Lane, question: Question) -> Result<Said, StoreError> {
        self.batcher.ask(lane, || question).await?.answer().await
    }

    /// The answer of this server to a command that is not about a name.
    pub(super) async fn ask(&self, command: Cmd) -> Result<Value, StoreError> {
        let command = Arc::new(command);
        let question = Question { command, subject: rand::random(), is_asking: false, answer_bytes: 0 };
        match self.say(Lane::Claim, question).await? {
            Said::Answer(answer) => Ok(answer),
            Said::Elsewhere(_) | Said::Large(_) => {
                Err(StoreError::unavailable("the Redis server redirected a command that is about no key"))
            }
        }
    }

    /// The server's clock, as exact as it is known without asking each time.
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        self.clock.or_ask(|| Box::pin(self.ask_time())).await
    }

    /// The server's time, from the quickest of a few answers: the first reading of a server decides
    /// by how much its clock seems to differ from those of other servers.
    async fn ask_time(&self) -> Result<Timestamp, StoreError> {
        const QUICK: Duration = Duration::from_millis(50);
        const TRIES: u32 = 4;
        let mut best: Option<(Duration, Instant, Timestamp)> = None;
        for _ in 0..TRIES {
            let asked = Instant::now();
            let (seconds, micros): (u64, u64) = parse(self.ask(cmd("TIME")).await?)?;
            let took = asked.elapsed();
            if best.is_none_or(|(quickest, ..)| took < quickest) {
                best = Some((took, Instant::now(), Timestamp::from_micros(seconds * 1_000_000 + micros)));
            }
            if took < QUICK {
                break;
            }
        }
        best.map(|(_, at, now)| now.after(at.elapsed()))
            .ok_or_else(|| StoreError::unavailable("the Redis server did not report its time"))
    }
}
