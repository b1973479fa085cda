//! A connection of a client, screened and with limited patience.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::gateway::accept::idle::Idle;
use crate::gateway::accept::linger::{Linger, Places};
use crate::gateway::accept::screen::{Screen, Tunnel};

/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose requests are [screened](Screen), and whose client has to begin, and to take what it asked for: one
/// that says or reads nothing for too long is cut off.
pub(in crate::gateway) struct Stream<I> {
    io: I,
    screen: Screen,
    idle: Arc<Idle>,
    patience: Duration,
    /// Runs until it is seen which protocol is spoken; from there on its parser has limits of its own.
    silent: Option<Pin<Box<Sleep>>>,
    /// How much of the preface has been read.
    matched: usize,
    /// What is read once the screen has refused something.
    end: &'static [u8],
    /// Runs while the client does not take more.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Where connections that linger have a place.
    places: Places,
    ending: Ending,
}

/// How far the end of a connection has got.
enum Ending {
    Open,
    /// Nothing more is written; what still comes is discarded.
    Lingering(Linger),
    Over,
}

impl<I> Stream<I> {
    /// `silence` is how long the client may take to begin, `patience` how long to take more. A connection of HTTP/2 counts from
    /// its preface on for how long it is idle.
    pub(in crate::gateway) fn new(
        io: I,
        silence: Duration,
        patience: Duration,
        tunnel: Tunnel,
        places: Places,
        idle: Arc<Idle>,
    ) -> Self {
        let silent = Some(Box::pin(sleep(silence)));
        Self {
            io,
            screen: Screen::new(tunnel),
            idle,
            patience,
            silent,
            matched: 0,
            end: b"\r\n\r\n",
            stalled: None,
            places,
            ending: Ending::Open,
        }
    }

    /// Ends the limit for the beginning when these bytes say which protocol it is.
    fn begin(&mut self, bytes: &[u8]) {
        if self.silent.is_none() {
            return;
        }
        let left = &PREFACE[self.matched..];
        let length = bytes.len().min(left.len());
        self.matched += length;
        if self.matched == PREFACE.len() {
            // In HTTP/1.1, the parser has a limit for that.
            self.idle.count();
        }
        if bytes[..length] != left[..length] || self.matched == PREFACE.len() {
            self.silent = None;
        }
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

impl<I: AsyncRead + Unpin> Stream<I> {
    /// A socket that is closed with unread bytes resets the connection, and with it the last answer is lost to a client that is
    /// still sending. Where bytes are on their way, or there already, they are read first.
    fn linger(&mut self, context: &mut Context<'_>) -> Option<Linger> {
        if !self.screen.is_http_1() {
            return None;
        }
        let comes_more = self.screen.expects_more() || {
            let mut byte = [0; 1];
            let mut byte = ReadBuf::new(&mut byte);
            let read = Pin::new(&mut self.io).poll_read(context, &mut byte);
            matches!(read, Poll::Ready(Ok(()))) && !byte.filled().is_empty()
        };
        if comes_more { self.places.linger() } else { None }
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
        let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(context, buffer) else {
            let Some(silent) = &mut self.silent else { return Poll::Pending };
            ready!(silent.as_mut().poll(context));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not begin")));
        };
        read?;
        self.begin(&buffer.filled()[before..]);
        let read = self.screen.look(&mut buffer.filled_mut()[before..]);
        buffer.set_filled(before + read);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<I> {
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
        loop {
            let this = &mut *self;
            this.ending = match &mut this.ending {
                Ending::Open => {
                    let shut = Pin::new(&mut this.io).poll_shutdown(context);
                    ready!(this.limit(context, shut))?;
                    match this.linger(context) {
                        Some(linger) => Ending::Lingering(linger),
                        None => Ending::Over,
                    }
                }
                Ending::Lingering(linger) => {
                    ready!(linger.poll(&mut this.io, context));
                    Ending::Over
                }
                Ending::Over => return Poll::Ready(Ok(())),
            };
        }
    }
}
