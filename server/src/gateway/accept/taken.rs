//! Rate limits for HTTP/2 responses whose clients read too slowly.
//!
//! An HTTP/2 client announces by its window how much of a stream it accepts, and a server waits
//! without limit for a client that announces nothing, while holding the data. hyper asks a body for
//! more as soon as it has accepted the last piece, and accepts a piece as soon as the window has
//! room for one byte of it. Bodies are therefore cut into small pieces, of which the last one is a
//! single byte: when that is accepted, the whole body is within the window. Each stream runs on a
//! task of its own, which measures the progress; a stream with too little progress is reset.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;

use crate::gateway::accept::idle::Busy;
use crate::gateway::accept::taking::Taking;
use crate::gateway::upstream::body::Reply;
use crate::gateway::upstream::patient::Broken;

/// The largest piece.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// The watch of the stream that runs on this task.
    static WATCH: Watch;
}

/// Runs the streams of a connection, each on a task of its own, and resets a stream whose client
/// reads too slowly.
#[derive(Clone)]
pub(in crate::gateway) struct Streams {
    patience: Duration,
}

impl Streams {
    pub(in crate::gateway) fn new(patience: Duration) -> Self {
        Self { patience }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let watch = Watch::default();
        tokio::spawn(WATCH.scope(watch.clone(), until_untaken(stream, watch, self.patience)));
    }
}

/// Runs a stream. Dropping the stream resets it.
async fn until_untaken(stream: impl Future<Output = ()>, watch: Watch, patience: Duration) {
    let mut stream = pin!(stream);
    let mut taking = Taking::new(patience);
    let mut seen = 0;
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let (taken, is_offered) = watch.now();
        taking.took(taken - seen);
        seen = taken;
        if is_offered {
            return taking.poll_slow(context);
        }
        taking.rest();
        Poll::Pending
    })
    .await;
}

/// Twice the number of bytes that the client has accepted, plus one while a piece is offered. Only
/// the task of the stream writes and reads it.
#[derive(Debug, Clone, Default)]
struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Marks the client as waited for.
    fn offer(&self) {
        self.0.fetch_or(1, Ordering::Relaxed);
    }

    /// Counts accepted bytes, and marks the client as not waited for.
    fn taken(&self, bytes: usize) {
        let taken = self.now().0 + bytes as u64;
        self.0.store(taken * 2, Ordering::Relaxed);
    }

    /// The number of accepted bytes, and whether a piece is offered.
    fn now(&self) -> (u64, bool) {
        let now = self.0.load(Ordering::Relaxed);
        (now / 2, now % 2 == 1)
    }
}

/// A response body, cut into pieces on a [watched](Streams) stream.
#[derive(Debug)]
pub(in crate::gateway) struct Taken {
    body: Reply,
    watch: Option<Watch>,
    /// The rest of a frame.
    rest: Bytes,
    /// The length of the last piece.
    offered: usize,
    _busy: Option<Busy>,
}

impl Taken {
    pub(in crate::gateway) fn new(body: Reply, busy: Option<Busy>) -> Self {
        Self { body, watch: WATCH.try_with(Clone::clone).ok(), rest: Bytes::new(), offered: 0, _busy: busy }
    }

    /// The next piece of these bytes.
    fn piece(&mut self, mut data: Bytes) -> Bytes {
        // A body that is known to continue needs no single last byte: its next piece shows that
        // this one was accepted.
        let goes_on = self.body.size_hint().lower() > 0;
        let length = match data.len() {
            length if length > PIECE => PIECE,
            length if length > 1 && !goes_on => length - 1,
            length => length,
        };
        let piece = data.split_to(length);
        self.rest = data;
        piece
    }
}

impl Body for Taken {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let Some(watch) = this.watch.clone() else { return Pin::new(&mut this.body).poll_frame(context) };
        watch.taken(std::mem::take(&mut this.offered));
        let data = if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        } else {
            std::mem::take(&mut this.rest)
        };
        let piece = this.piece(data);
        this.offered = piece.len();
        watch.offer();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut size = SizeHint::new();
        if let Some(upper) = body.upper() {
            size.set_upper(upper.saturating_add(rest));
        }
        size.set_lower(body.lower().saturating_add(rest));
        size
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::gateway::upstream::body::Returned;

    fn own(length: usize) -> Reply {
        Reply::Other(Returned::Own(Some(Bytes::from(vec![7; length]))))
    }

    async fn pieces(mut body: Taken) -> Vec<usize> {
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap().len());
        }
        pieces
    }

    #[tokio::test]
    async fn a_watched_body_ends_in_a_piece_of_one_byte() {
        for (length, expected) in [
            (1, vec![1]),
            (2, vec![1, 1]),
            (PIECE, vec![PIECE - 1, 1]),
            (PIECE + 1, vec![PIECE, 1]),
            (2 * PIECE + 3, vec![PIECE, PIECE, 2, 1]),
        ] {
            let whole = Taken::new(own(length), None);
            assert_eq!(whole.size_hint().exact(), Some(length as u64));
            assert_eq!(pieces(whole).await, [length], "an unwatched body is not cut");
            let watched =
                WATCH.scope(Watch::default(), async { pieces(Taken::new(own(length), None)).await });
            assert_eq!(watched.await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_nothing_of_it_is_taken_and_not_when_nothing_is_there() {
        let patience = Duration::from_secs(30);
        let watch = Watch::default();
        let stream = until_untaken(std::future::pending(), watch.clone(), patience);
        let mut stream = pin!(stream);
        let mut stays = async |time| tokio::time::timeout(time, stream.as_mut()).await.is_err();
        assert!(stays(patience * 9).await, "nothing was offered");
        for _ in 0..3 {
            watch.offer();
            assert!(stays(patience * 9 / 10).await);
            watch.taken(PIECE);
            assert!(stays(patience * 9).await, "the next piece is not there");
        }
        watch.offer();
        assert!(!stays(patience * 11 / 10).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_little_of_it_is_taken_and_not_when_enough_is() {
        for (pieces_a_second, ends) in [(0.5, true), (2.0, false)] {
            let watch = Watch::default();
            watch.offer();
            let client = watch.clone();
            let taking = async {
                for _ in 0..100 {
                    tokio::time::sleep(Duration::from_secs_f64(1.0 / pieces_a_second)).await;
                    client.taken(PIECE);
                    client.offer();
                }
            };
            let ended = tokio::select! {
                () = until_untaken(std::future::pending(), watch, Duration::from_secs(30)) => true,
                () = taking => false,
            };
            assert_eq!(ended, ends, "{pieces_a_second}");
        }
    }
}
