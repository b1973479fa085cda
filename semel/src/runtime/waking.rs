//! Polling without self-wakes.
//!
//! The driver of a connection and its caller share one task here and talk over channels. Each
//! message wakes the task that is already being polled. The runtime would then wake another thread
//! to share the load, and poll the task once more. A wake during a poll therefore only makes the
//! task poll once more by itself.
//!
//! In plain code, every statement of a lone caller made 1.2 futex calls and 1.4 writes to the event
//! counter of the runtime; here it makes none. A user would notice it in the rate and the latency
//! of one caller, the column `1 caller` of `cargo run -p bench --release -- postgres`.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The number of repeated polls before the runtime decides: a task that has used up its budget is
/// woken again at once for as long as it goes on.
const LOOKS: u32 = 8;

const WAITS: u8 = 0;
const LOOKS_ON: u8 = 1;
const STIRRED: u8 = 2;

/// Polling that is repeated at once if the task is woken during it.
#[derive(Clone, Default)]
pub(crate) struct Attention(Arc<Calls>);

/// The requests for another poll, and the task that they go to.
#[derive(Default)]
struct Calls {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let stirred = |state| (state == LOOKS_ON).then_some(STIRRED);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, stirred) == Err(WAITS) {
            self.task.wake();
        }
    }
}

impl Attention {
    pub(crate) async fn poll<T>(&self, mut look: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let Calls { state, task } = &*self.0;
        let waker = Waker::from(Arc::clone(&self.0));
        poll_fn(|context| {
            task.register(context.waker());
            for _ in 0..LOOKS {
                state.store(LOOKS_ON, Ordering::Release);
                let seen = look(&mut Context::from_waker(&waker));
                let stirred = state.swap(WAITS, Ordering::AcqRel) == STIRRED;
                if seen.is_ready() || !stirred {
                    return seen;
                }
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A counter of the wakes of a task.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Task {
        fn poll<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> Poll<T> {
            pin!(future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
        }

        fn woken(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_wake_during_a_poll_repeats_the_poll_and_wakes_no_task() {
        let (task, attention, mut looks) = (Arc::new(Task::default()), Attention::default(), 0);
        let seen = task.poll(attention.poll(|context| {
            looks += 1;
            context.waker().wake_by_ref();
            if looks == 3 { Poll::Ready("done") } else { Poll::Pending }
        }));
        assert_eq!((seen, task.woken()), (Poll::Ready("done"), 0));
    }

    #[test]
    fn what_stirs_later_wakes_the_task() {
        let (task, attention, mut kept) = (Arc::new(Task::default()), Attention::default(), None);
        let seen = task.poll(attention.poll(|context| {
            kept = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
        assert_eq!((seen, task.woken()), (Poll::Pending, 0));
        kept.expect("it has looked").wake();
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn what_never_rests_is_left_to_the_runtime() {
        let (task, attention, mut looks) = (Arc::new(Task::default()), Attention::default(), 0);
        let seen = task.poll(attention.poll(|context| {
            looks += 1;
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert_eq!((seen, task.woken(), looks), (Poll::Pending, 1, LOOKS));
    }
}
