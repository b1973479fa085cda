//! A received body with a time limit.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use crate::gateway::request::passing::Place;

/// A body that counts as broken after too long a pause.
#[derive(Debug)]
pub(in crate::gateway) struct Patient {
    body: Incoming,
    patience: Option<Duration>,
    /// Runs while nothing arrives.
    idle: Option<Pin<Box<Sleep>>>,
    /// Held until this is dropped.
    _place: Option<Arc<Place>>,
}

impl Patient {
    /// A body with this time limit; `None` means no limit.
    pub(in crate::gateway) fn new(body: Incoming, patience: Option<Duration>) -> Self {
        Self { body, patience, idle: None, _place: None }
    }

    /// Holds this place for as long as the body exists.
    pub(in crate::gateway) fn holding(self, place: Arc<Place>) -> Self {
        Self { _place: Some(place), ..self }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.idle = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::Off)));
        }
        let Some(patience) = self.patience else { return Poll::Pending };
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

/// The reason why a body ended early.
#[derive(Debug)]
pub(in crate::gateway) enum Broken {
    Off(hyper::Error),
    Slow,
}

impl Broken {
    /// Returns this error if it is the cause of another.
    pub(in crate::gateway) fn caused<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
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
            Self::Off(_) => f.write_str("the body broke off"),
            Self::Slow => f.write_str("the body did not go on"),
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
