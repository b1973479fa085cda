//! The bodies that pass through.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use semel::http::ReadAhead;

use super::line::Exchange;
use super::passing::Place;
use super::patient::{Broken, Patient};

/// What a client sends. Its trailers end here: what they add to the head was not there when the key was claimed.
#[derive(Debug)]
pub(super) struct Inbound {
    body: Patient,
    moved: Option<Moved>,
}

impl Inbound {
    /// A body that somebody reads before it is passed on, who has a limit of his own.
    pub(super) fn read(body: Incoming) -> Self {
        Self { body: Patient::new(body, None), moved: None }
    }

    /// A body that is passed on while it comes, as long as it goes on coming.
    pub(super) fn passed(body: Incoming, patience: Duration, moved: Moved) -> Self {
        Self { body: Patient::new(body, Some(patience)), moved: Some(moved) }
    }
}

/// How often something has come of a body.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved(Arc<AtomicU64>);

impl Moved {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let (Some(Moved(moved)), Some(_)) = (&self.moved, &frame) {
            moved.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(frame.filter(|frame| frame.as_ref().map_or(true, Frame::is_data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What goes to the upstream: as the client sent it, or as the layer has read it.
#[derive(Debug)]
pub(super) enum Outbound {
    Passed(Inbound),
    Read(ReadAhead<Inbound>),
}

impl Outbound {
    /// Another body with the same bytes, if the layer has read all of it.
    pub(super) fn try_clone(&self) -> Option<Self> {
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

/// What comes back: from the upstream, or from the gateway in its place.
#[derive(Debug)]
pub(super) enum Returned {
    /// With the exchange that ends when it does.
    Passed(Patient, Option<Exchange>),
    Own(Option<Bytes>),
}

impl Returned {
    /// What the upstream answers, as long as it goes on.
    pub(super) fn passed(body: Incoming, patience: Duration, exchange: Option<Exchange>) -> Self {
        if let Some(exchange) = exchange.as_ref().filter(|_| body.is_end_stream()) {
            exchange.end();
        }
        Self::Passed(Patient::new(body, Some(patience)), exchange)
    }

    /// Takes up this place until it has been passed on.
    pub(super) fn holding(self, place: Place) -> Self {
        match self {
            Self::Passed(body, exchange) => Self::Passed(body.holding(place), exchange),
            own @ Self::Own(_) => own,
        }
    }
}

/// What a client gets.
#[derive(Debug)]
pub(super) enum Reply {
    Layer(ReadAhead<Returned>),
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

/// Either of two bodies is one.
macro_rules! either {
    ($either:ident { $one:ident, $other:ident }) => {
        impl Body for $either {
            type Data = Bytes;
            type Error = Broken;

            fn poll_frame(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
                match self.get_mut() {
                    Self::$one(body) => Pin::new(body).poll_frame(context),
                    Self::$other(body) => Pin::new(body).poll_frame(context),
                }
            }

            fn is_end_stream(&self) -> bool {
                match self {
                    Self::$one(body) => body.is_end_stream(),
                    Self::$other(body) => body.is_end_stream(),
                }
            }

            fn size_hint(&self) -> SizeHint {
                match self {
                    Self::$one(body) => body.size_hint(),
                    Self::$other(body) => body.size_hint(),
                }
            }
        }
    };
}

either!(Outbound { Passed, Read });
either!(Reply { Layer, Other });
