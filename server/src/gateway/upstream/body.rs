//! The bodies on their way between client and upstream.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use semel::http::ReadAhead;
use tokio::time::Instant;

use crate::gateway::request::passing::Place;
use crate::gateway::upstream::drip::Drip;
use crate::gateway::upstream::line::Exchange;
use crate::gateway::upstream::patient::{Broken, Patient};

/// The body of a client's request. Its trailers are dropped: fields that they add to the head were
/// not there when the key was claimed.
#[derive(Debug)]
pub(in crate::gateway) struct Inbound {
    /// `None` for an empty body.
    body: Option<Patient>,
    passing: Option<Passing>,
}

/// The limits of a body that is passed on while it arrives.
#[derive(Debug)]
struct Passing {
    moved: Moved,
    drip: Drip,
}

impl Inbound {
    /// A body that is read in full before it is passed on, by a reader with limits of its own.
    pub(in crate::gateway) fn read(body: Incoming) -> Self {
        Self { body: Some(Patient::new(body, None)), passing: None }
    }

    /// The body of a request without one.
    fn empty() -> Self {
        Self { body: None, passing: None }
    }

    /// A body that is passed on while it arrives, as long as [enough](Drip) of it arrives in each
    /// period.
    pub(in crate::gateway) fn passed(body: Incoming, period: Duration, moved: Moved) -> Self {
        let passing = Passing { moved, drip: Drip::new(period) };
        Self { body: Some(Patient::new(body, None)), passing: Some(passing) }
    }
}

/// The time of the last progress of a body.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Moved(Arc<Progress>);

#[derive(Debug)]
struct Progress {
    began: Instant,
    /// The time in milliseconds from the beginning.
    last: AtomicU64,
    /// The place of the request, which is held until the body has ended.
    place: OnceLock<Arc<Place>>,
}

impl Moved {
    /// A body without progress so far.
    pub(in crate::gateway) fn new() -> Self {
        Self(Arc::new(Progress { began: Instant::now(), last: AtomicU64::new(0), place: OnceLock::new() }))
    }

    fn now(&self) {
        let passed = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(passed, Ordering::Relaxed);
    }

    /// Holds this place until the body has ended.
    pub(in crate::gateway) fn hold(&self, place: Arc<Place>) {
        // A request is sent once, so there is no other place.
        let _kept = self.0.place.set(place);
    }

    /// The time of the last progress; the beginning if there was none.
    pub(in crate::gateway) fn last(&self) -> Instant {
        self.0.began + Duration::from_millis(self.0.last.load(Ordering::Relaxed))
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Self { body, passing } = &mut *self;
        let Some(body) = body else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            let Some(passing) = passing else { return Poll::Pending };
            ready!(passing.drip.poll_slow(context));
            return Poll::Ready(Some(Err(Broken::Slow)));
        };
        if let (Some(passing), Some(Ok(frame))) = (passing, &frame) {
            passing.moved.now();
            passing.drip.came(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame.filter(|frame| frame.as_ref().map_or(true, Frame::is_data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Patient::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Patient::size_hint)
    }
}

/// The body for the upstream: as the client sends it, or as the layer has read it.
#[derive(Debug)]
pub(in crate::gateway) enum Outbound {
    Passed(Inbound),
    Read(ReadAhead<Inbound>),
}

impl Outbound {
    /// Another body with the same bytes, if the layer has read all of it or no bytes remain.
    pub(in crate::gateway) fn try_clone(&self) -> Option<Self> {
        if self.is_end_stream() {
            return Some(Self::Passed(Inbound::empty()));
        }
        match self {
            Self::Passed(_) => None,
            Self::Read(body) => body.try_clone().map(Self::Read),
        }
    }
}

impl From<Inbound> for Outbound {
    fn from(body: Inbound) -> Self {
        Self::Passed(body)
    }
}

impl From<ReadAhead<Inbound>> for Outbound {
    fn from(body: ReadAhead<Inbound>) -> Self {
        Self::Read(body)
    }
}

/// The body of a response: from the upstream, or from the gateway itself.
#[derive(Debug)]
pub(in crate::gateway) enum Returned {
    /// A body of the upstream, with the exchange that ends with it.
    Passed(Patient, Option<Exchange>),
    Own(Option<Bytes>),
}

impl Returned {
    /// The body of the upstream's answer, with a limit on its pauses.
    pub(in crate::gateway) fn passed(body: Incoming, patience: Duration, exchange: Option<Exchange>) -> Self {
        if let Some(exchange) = exchange.as_ref().filter(|_| body.is_end_stream()) {
            exchange.end();
        }
        Self::Passed(Patient::new(body, Some(patience)), exchange)
    }

    /// Holds this place until the body has been passed on.
    pub(in crate::gateway) fn holding(self, place: Arc<Place>) -> Self {
        match self {
            Self::Passed(body, exchange) => Self::Passed(body.holding(place), exchange),
            own @ Self::Own(_) => own,
        }
    }
}

/// The body for the client.
#[derive(Debug)]
pub(in crate::gateway) enum Reply {
    /// An answer of the layer, with its place if it is streamed after its attempt has ended.
    Layer {
        body: ReadAhead<Returned>,
        _place: Option<Place>,
    },
    Other(Returned),
}

impl Body for Returned {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Passed(body, exchange) => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(context));
                if let Some(exchange) = exchange.as_ref().filter(|_| frame.is_none() || body.is_end_stream())
                {
                    exchange.end();
                }
                Poll::Ready(frame)
            }
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passed(body, _) => body.is_end_stream(),
            Self::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passed(body, _) => body.size_hint(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

/// Implements a body for an enum of two bodies.
macro_rules! either {
    ($either:ident as $body:ident { $one:pat, $other:pat }) => {
        impl Body for $either {
            type Data = Bytes;
            type Error = Broken;

            fn poll_frame(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
                match self.get_mut() {
                    $one => Pin::new($body).poll_frame(context),
                    $other => Pin::new($body).poll_frame(context),
                }
            }

            fn is_end_stream(&self) -> bool {
                match self {
                    $one => $body.is_end_stream(),
                    $other => $body.is_end_stream(),
                }
            }

            fn size_hint(&self) -> SizeHint {
                match self {
                    $one => $body.size_hint(),
                    $other => $body.size_hint(),
                }
            }
        }
    };
}

either!(Outbound as body { Outbound::Passed(body), Outbound::Read(body) });
either!(Reply as body { Reply::Layer { body, .. }, Reply::Other(body) });
