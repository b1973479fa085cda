//! The spare copy of a request, for the case that a kept connection turns out to be unfit for it.
//!
//! ```text
//! keep ── first bytes are written ── (the spare is dropped) ── answer
//!    │
//!    unfit: nothing is written ── take ── the spare goes over a new connection
//! ```
//!
//! A request is charged to the budget until the upstream's connection has taken its last byte. A
//! spare shares the bytes of its request, so it must not be kept while the upstream works: it is
//! dropped with the first byte that is written, from which on the request cannot be sent again.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use http::{Uri, request};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use parking_lot::{Mutex, MutexGuard};
use tower_service::Service;

use crate::gateway::upstream::body::Outbound;

/// Another copy of a request.
pub(in crate::gateway) struct Spare {
    pub(in crate::gateway) parts: request::Parts,
    pub(in crate::gateway) body: Outbound,
}

impl Spare {
    /// A copy, if the body can be copied.
    pub(in crate::gateway) fn of(parts: &request::Parts, body: &Outbound) -> Option<Self> {
        Some(Self { body: body.try_clone()?, parts: parts.clone() })
    }
}

/// The spare of the request that a connection is about to write. A connection has one request at a
/// time.
#[derive(Clone, Default)]
pub(in crate::gateway) struct Spares(Arc<Mutex<Option<Spare>>>);

impl Spares {
    /// Keeps a spare until the connection writes.
    pub(in crate::gateway) fn keep(&self, spare: Option<Spare>) {
        *self.kept() = spare;
    }

    /// The spare, if nothing was written since.
    pub(in crate::gateway) fn take(&self) -> Option<Spare> {
        self.kept().take()
    }

    fn kept(&self) -> MutexGuard<'_, Option<Spare>> {
        self.0.lock()
    }
}

/// A connector whose connections drop the spare of a request when they write.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Sparing<C>(pub(in crate::gateway) C);

impl<C> Service<Uri> for Sparing<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = Watched<C::Response>;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { Ok(Watched { io: connecting.await?, spares: Spares::default() }) })
    }
}

/// A connection that drops the spare of its request when it has written.
pub(in crate::gateway) struct Watched<I> {
    io: I,
    spares: Spares,
}

impl<I> Watched<I> {
    fn wrote(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let wrote = ready!(wrote);
        if wrote.is_ok() {
            drop(self.spares.take());
        }
        Poll::Ready(wrote)
    }
}

impl<I: Connection> Connection for Watched<I> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.spares.clone())
    }
}

impl<I: Read + Unpin> Read for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: Write + Unpin> Write for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.wrote(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
