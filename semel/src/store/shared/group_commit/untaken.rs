//! The answers that were sent to callers whose tasks have not run since.
//!
//! An answer may hold a large outcome, which its caller adds to a budget of memory, or drops, as
//! soon as its task runs. Until then nothing else counts it. So no batch is sent while the untaken
//! answers are larger than those of one batch.
//!
//! A caller takes its answer by being polled or dropped, and needs nothing else for it, so this
//! wait cannot be part of a circle. It is short nevertheless: a program may hold a future for long
//! without polling it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::MAX_ANSWER_BYTES;

/// The longest wait for callers to take their answers.
pub(super) const MAX_UNTAKEN_WAIT: Duration = Duration::from_millis(500);

/// The size of the untaken answers of a queue.
#[derive(Default)]
pub(super) struct Untaken {
    bytes: AtomicUsize,
    /// Notified when the answers are small enough for another batch.
    few: Notify,
}

/// A value whose size counts as untaken until this is dropped.
pub(super) struct Counted<T> {
    pub(super) value: T,
    #[expect(dead_code, reason = "it is held, and dropped")]
    count: Option<Count>,
}

struct Count {
    of: Arc<Untaken>,
    bytes: usize,
}

impl Untaken {
    pub(super) fn count<T>(self: &Arc<Self>, value: T, bytes: usize) -> Counted<T> {
        let count = (bytes > 0).then(|| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            Count { of: Arc::clone(self), bytes }
        });
        Counted { value, count }
    }

    /// Waits until another batch can be sent.
    pub(super) async fn wait(&self) {
        if !self.is_much() {
            return;
        }
        let taken = async {
            loop {
                let few = self.few.notified();
                if !self.is_much() {
                    return;
                }
                few.await;
            }
        };
        // After this time the callers are considered to be gone.
        let _taken = timeout(MAX_UNTAKEN_WAIT, taken).await;
    }

    fn is_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MAX_ANSWER_BYTES
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let before = self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if before > MAX_ANSWER_BYTES && before - self.bytes <= MAX_ANSWER_BYTES {
            self.of.few.notify_waiters();
        }
    }
}
