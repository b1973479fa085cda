//! A connection of a client, screened and with time limits.

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
use crate::gateway::accept::taking::Taking;

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's connection whose requests are [screened](Screen). The client has to send its first
/// request and to read its answers in time; a connection that is silent for too long, or reads too
/// slowly, is closed.
pub(in crate::gateway) struct Stream<I> {
    io: I,
    screen: Screen,
    tunnel: Tunnel,
    idle: Arc<Idle>,
    /// The time limit until the protocol is known; from then on the parser has limits of its own.
    silent: Option<Pin<Box<Sleep>>>,
    /// The number of bytes of the preface that have been read.
    matched: usize,
    /// The bytes that the parser reads after the screen has refused a request.
    end: &'static [u8],
    /// The rate at which the client reads.
    taking: Taking,
    /// The places for lingering connections.
    places: Places,
    ending: Ending,
}

/// The progress of the end of a connection.
enum Ending {
    Open,
    /// Writing has ended; further input is discarded.
    Lingering(Linger),
    Over,
}

impl<I> Stream<I> {
    /// `silence` is the time limit for the first request, `patience` the period over which the read
    /// rate is measured. An HTTP/2 connection counts its idle time from its preface.
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
            screen: Screen::new(tunnel.clone()),
            tunnel,
            idle,
            silent,
            matched: 0,
            end: b"\r\n\r\n",
            taking: Taking::new(patience),
            places,
            ending: Ending::Open,
        }
    }

    /// Ends the limit for the first request when these bytes identify the protocol.
    fn begin(&mut self, bytes: &[u8]) {
        if self.silent.is_none() {
            return;
        }
        let left = &PREFACE[self.matched..];
        let length = bytes.len().min(left.len());
        self.matched += length;
        if self.matched == PREFACE.len() {
            // For HTTP/1.1, the parser has such a limit.
            self.idle.count();
        }
        if bytes[..length] != left[..length] || self.matched == PREFACE.len() {
            self.silent = None;
        }
    }

    /// The result of a write; a client that makes writes wait must read fast enough.
    fn limit_write(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            // In a tunnel the other side decides when there is something to write, so any progress
            // is enough.
            Poll::Ready(Ok(_)) if self.tunnel.is_open() => self.taking.rest(),
            // The number of bytes left to write is unknown here; a flush follows when none is left.
            Poll::Ready(Ok(bytes)) => self.taking.took(bytes as u64),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                ready!(self.taking.poll_slow(context));
                return Poll::Ready(Err(too_slow()));
            }
        }
        wrote
    }

    /// The result of a flush, which comes when everything is written.
    fn limit_flush(
        &mut self,
        context: &mut Context<'_>,
        flushed: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if flushed.is_ready() {
            self.taking.rest();
            return flushed;
        }
        ready!(self.taking.poll_slow(context));
        Poll::Ready(Err(too_slow()))
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")
}

impl<I: AsyncRead + Unpin> Stream<I> {
    /// Starts lingering. A socket that is closed with unread bytes resets the connection, and a
    /// client that is still sending loses the last answer. Bytes that are still arriving are
    /// therefore read first.
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
            // The parser examines a head only when it is complete.
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
        self.limit_write(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.limit_write(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.limit_flush(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            this.ending = match &mut this.ending {
                Ending::Open => {
                    let shut = Pin::new(&mut this.io).poll_shutdown(context);
                    ready!(this.limit_flush(context, shut))?;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const PIECE: usize = 16 << 10;

    /// A stream whose client receives small pieces.
    fn stream() -> (Stream<DuplexStream>, DuplexStream) {
        let (io, client) = duplex(PIECE);
        let (tunnel, places) = (Tunnel::default(), Places::default());
        (Stream::new(io, PATIENCE, PATIENCE, tunnel, places, Idle::new()), client)
    }

    /// Reads a piece after each pause.
    async fn take(mut client: DuplexStream, pause: Duration) {
        let mut piece = vec![0; PIECE];
        loop {
            sleep(pause).await;
            if client.read_exact(&mut piece).await.is_err() {
                return;
            }
        }
    }

    /// Writes this much to a client that reads a piece after each pause, and then flushes.
    async fn written(pieces: usize, pause: Duration) -> io::Result<()> {
        let (mut stream, client) = stream();
        let taking = tokio::spawn(take(client, pause));
        let bytes = vec![7; pieces * PIECE];
        let written = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        };
        let written = written.await;
        taking.abort();
        written
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_piece_now_and_then_is_cut_off_and_one_that_goes_on_is_not() {
        let began = Instant::now();
        let slow = written(64, PATIENCE - Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(slow.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() <= PATIENCE * 2, "{:?}", began.elapsed());
        written(640, Duration::from_millis(900)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_restarts_when_everything_is_written() {
        let (mut stream, client) = stream();
        let taking = tokio::spawn(take(client, PATIENCE - Duration::from_secs(1)));
        for _ in 0..10 {
            stream.write_all(&vec![7; PIECE]).await.unwrap();
            stream.flush().await.unwrap();
        }
        taking.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_tunnel_any_progress_is_enough() {
        let (mut stream, client) = stream();
        stream.tunnel.open();
        let taking = tokio::spawn(take(client, PATIENCE - Duration::from_secs(1)));
        stream.write_all(&vec![7; 16 * PIECE]).await.unwrap();
        taking.abort();
    }
}
