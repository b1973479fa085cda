//! The bodies that pass through.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use semel::http::ReadAhead;
use tokio::time::{Sleep, sleep};

/// What a client sends, as long as it goes on sending.
#[derive(Debug)]
pub(super) struct Inbound {
    body: Incoming,
    /// None if it is read before it is passed on, by somebody who has a limit.
    passing: Option<Passing>,
    /// Runs while nothing comes.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Inbound {
    pub(super) fn new(body: Incoming, passing: Option<Passing>) -> Self {
        Self { body, passing, idle: None }
    }
}

/// A body that is passed on while it comes.
#[derive(Debug, Clone)]
pub(super) struct Passing {
    /// How long to wait for more of it.
    pub(super) patience: Duration,
    /// How often something has come.
    moved: Arc<AtomicU64>,
}

impl Passing {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, moved: Arc::default() }
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.idle = None;
            if let Some(passing) = &self.passing {
                passing.moved.fetch_add(1, Ordering::Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::Off)));
        }
        let Some(patience) = self.passing.as_ref().map(|passing| passing.patience) else {
            return Poll::Pending;
        };
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(idle.as_mut().poll(context));
        Poll::Ready(Some(Err(Broken::Slow)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why the body of a client ended too early.
#[derive(Debug)]
pub(super) enum Broken {
    Off(hyper::Error),
    Slow,
}

impl Broken {
    /// Whether this is why something else failed.
    pub(super) fn caused<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(broken) = error.downcast_ref() {
                return Some(broken);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off(_) => f.write_str("the body of the request broke off"),
            Self::Slow => f.write_str("the body of the request did not go on"),
        }
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Off(error) => Some(error),
            Self::Slow => None,
        }
    }
}

/// What goes to the upstream: as the client sent it, or as the layer has read it.
#[derive(Debug)]
pub(super) enum Outbound {
    Passed(Inbound),
    Read(ReadAhead<Inbound>),
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
    Passed(Incoming),
    Own(Option<Bytes>),
}

/// What a client gets.
#[derive(Debug)]
pub(super) enum Reply {
    Layer(ReadAhead<Returned>),
    Other(Returned),
}

impl Body for Returned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Passed(body) => Pin::new(body).poll_frame(context),
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passed(body) => body.is_end_stream(),
            Self::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passed(body) => body.size_hint(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

/// Either of two bodies is one.
macro_rules! either {
    ($either:ident { $one:ident, $other:ident }, $error:ty) => {
        impl Body for $either {
            type Data = Bytes;
            type Error = $error;

            fn poll_frame(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, $error>>> {
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

either!(Outbound { Passed, Read }, Broken);
either!(Reply { Layer, Other }, hyper::Error);
