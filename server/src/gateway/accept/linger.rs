//! The end of a connection whose client is still sending.
//!
//! ```text
//! answer written ── FIN ── discard what comes ──┬── the client closes
//!                                               ├── 5 s without a byte
//!                                               ├── 30 s, or 256 MiB
//!                                               └── no place left: at once
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// The number of connections that may linger at a time. Further ones are closed at once, and their
/// clients may miss the answer.
const LINGERING: usize = 512;
/// The longest time for which a connection lingers.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time without a byte.
const IDLE: Duration = Duration::from_secs(5);
/// The most bytes that are discarded.
const MOST: usize = 256 << 20;
/// The bytes per read, on the stack.
const PIECE: usize = 16 << 10;
/// The number of reads before other tasks have their turn.
const TURN: usize = 32;

/// The places for lingering connections.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LINGERING)))
    }
}

impl Places {
    /// Starts lingering, if there is a place.
    pub(in crate::gateway) fn linger(&self) -> Option<Linger> {
        let place = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(Linger {
            left: MOST,
            over: Box::pin(sleep(LONGEST)),
            idle: Box::pin(sleep(IDLE)),
            _place: place,
        })
    }
}

/// A connection that discards input from its client.
#[derive(Debug)]
pub(in crate::gateway) struct Linger {
    left: usize,
    over: Pin<Box<Sleep>>,
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Linger {
    /// Ready when the client has closed, or the time or the bytes are used up.
    pub(in crate::gateway) fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut came = false;
        for _ in 0..TURN {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            match Pin::new(&mut *io).poll_read(context, &mut piece) {
                Poll::Ready(Ok(())) if !piece.filled().is_empty() && piece.filled().len() < self.left => {
                    self.left -= piece.filled().len();
                    came = true;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    if came {
                        self.idle.as_mut().reset(Instant::now() + IDLE);
                    }
                    return self.idle.as_mut().poll(context);
                }
            }
        }
        self.idle.as_mut().reset(Instant::now() + IDLE);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    async fn lingers(mut io: impl AsyncRead + Unpin) -> Duration {
        let began = Instant::now();
        let mut linger = Places::default().linger().expect("a place");
        poll_fn(|context| linger.poll(&mut io, context)).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_ends_it() {
        let (mut client, io) = duplex(1 << 10);
        let sending = tokio::spawn(async move { client.write_all(&[7; 100_000]).await });
        assert!(lingers(io).await < Duration::from_secs(1));
        sending.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_drips_are_limited() {
        let (_silent, io) = duplex(1 << 10);
        assert_eq!(lingers(io).await.as_secs(), IDLE.as_secs());
        let (mut client, io) = duplex(1 << 10);
        let dripping = tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(4)).await;
            }
        });
        assert_eq!(lingers(io).await.as_secs(), LONGEST.as_secs());
        dripping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_limited() {
        let endless = tokio::io::repeat(7);
        assert!(lingers(endless).await < IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_linger_than_there_are_places() {
        let places = Places::default();
        let all: Vec<_> = (0..LINGERING).map(|_| places.linger().expect("a place")).collect();
        assert!(places.linger().is_none());
        drop(all);
        assert!(places.linger().is_some());
    }
}
