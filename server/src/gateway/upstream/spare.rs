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

use http::Request;
use parking_lot::{Mutex, MutexGuard};

use crate::gateway::upstream::body::Outbound;

/// Another copy of a request to the upstream.
#[derive(Debug)]
pub(in crate::gateway) struct Spare(Request<Outbound>);

impl Spare {
    /// A copy without the extensions, if the body can be copied.
    pub(in crate::gateway) fn of(request: &Request<Outbound>) -> Option<Self> {
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        Some(Self(copy))
    }

    pub(in crate::gateway) fn into_request(self) -> Request<Outbound> {
        self.0
    }
}

/// The spare of the request that a connection is about to write. A connection has one request at a
/// time.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Spares(Mutex<Option<Spare>>);

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
