//! The step *run*: the call of the handler.

use ::http::request::Parts;
use ::http::{Request, Response};
use tower_service::Service;

use crate::http::request::body::ReadAhead;
use crate::words::lease::Lease;

/// Runs the handler with its lease, which it finds in the extensions of the request.
pub(in crate::http) async fn run<S, Q, R>(
    mut inner: S,
    mut parts: Box<Parts>,
    body: ReadAhead<Q>,
    lease: Lease,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<ReadAhead<Q>>, Response = Response<R>>,
    Q: http_body::Body,
{
    parts.extensions.insert(lease);
    inner.call(Request::from_parts(*parts, body)).await
}
