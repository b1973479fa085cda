//! A connection of a client, screened and with limited patience.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::screen::{Screen, Tunnel};

/// A connection whose requests are [screened](Screen), and whose client has to take what it asked for: one that reads
/// nothing for too long is cut off.
pub(super) struct Stream<I> {
    io: I,
    screen: Screen,
    patience: Duration,
    /// What is read once the screen has refused something.
    end: &'static [u8],
    /// Runs while the client does not take more.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<I> Stream<I> {
    pub(super) fn new(io: I, patience: Duration, tunnel: Tunnel) -> Self {
        Self { io, screen: Screen::new(tunnel), patience, end: b"\r\n\r\n", stalled: None }
    }

    /// The answer to a write; one that has to wait does so for a limited time.
    fn limit<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Stream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.screen.has_refused() {
            // The parser looks at a head when it is complete.
            let (now, later) = self.end.split_at(self.end.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.end = later;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        let read = self.screen.look(&mut buffer.filled_mut()[before..]);
        buffer.set_filled(before + read);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Stream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(context, bytes);
        self.limit(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.limit(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.limit(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.limit(context, shut)
    }
}
