//! The options for responses: what is recorded, and what refusals look like.

use std::sync::Arc;
use std::time::Duration;

use ::http::Response;
use ::http::header::HeaderName;
use bytes::Bytes;

use super::IdempotencyLayer;
use crate::http::reply::rejection::Rejection;
use crate::http::response::settle::Settle;

impl IdempotencyLayer {
    /// Adds a header of the response to the recorded ones. It must not belong to one caller or one
    /// connection; see [`IdempotencyLayer::check`].
    #[must_use]
    pub fn with_recorded_header(self, name: HeaderName) -> Self {
        self.with(|options| options.recorded.add(name))
    }

    /// Sets the rule by which a response settles its key, where the handler does not decide itself.
    /// A response for which it returns `None` follows the table of [`Settle`].
    #[must_use]
    pub fn with_settle(
        self,
        settle: impl Fn(&::http::response::Parts) -> Option<Settle> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.settle = Some(Arc::new(settle)))
    }

    /// Makes a response an outcome only when it has come to its end, within this time. A response
    /// that breaks off earlier is not an outcome: the key is held, and the caller gets an error. A
    /// response that takes longer, or is a stream by its type, is recorded without its body, as
    /// usual.
    ///
    /// This is for remote inner services, behind a connection: the service that sent the status may
    /// not have done its work yet. Unless it is set, a response that breaks off is recorded without
    /// its body, and the layer waits for one of unknown length for a second.
    #[must_use]
    pub fn with_whole_responses(self, within: Duration) -> Self {
        self.with(|options| options.whole_within = Some(within))
    }

    /// Sets the page that describes the problems: its URL becomes their `type`, with the code as
    /// its fragment.
    ///
    /// `docs/troubleshooting.md` of this project is such a page; serve it, or one with the same
    /// headings.
    #[must_use]
    pub fn with_problem_page(self, url: &str) -> Self {
        self.with(|options| options.renderer.page = Some(Arc::from(url)))
    }

    /// Sets the response that the caller gets for a refusal, instead of problem details.
    #[must_use]
    pub fn with_rejections(
        self,
        render: impl Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.renderer.own = Some(Arc::new(render)))
    }
}
