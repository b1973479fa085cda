//! The extractors and responses for handlers of axum.

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, IntoResponseParts, ResponseParts};
use bytes::Bytes;

use crate::http::reply::rejection::Rejection;
use crate::http::reply::renderer::Renderer;
use crate::http::request::read::Unkeyed;
use crate::http::response::settle::Settle;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

/// The lease of the attempt that runs this handler. A request without a key is refused.
impl<S: Sync> FromRequestParts<S> for Lease {
    type Rejection = axum::response::Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        if let Some(lease) = parts.extensions.get::<Self>() {
            return Ok(lease.clone());
        }
        Err(match parts.extensions.get::<Unkeyed>() {
            Some(Unkeyed(renderer)) => renderer.render(Rejection::KeyMissing).map(Body::from),
            None => {
                tracing::error!("a handler requires a lease, but there is no IdempotencyLayer around it");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        })
    }
}

/// The lease, if the request has a key.
impl<S: Sync> OptionalFromRequestParts<S> for Lease {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

impl IntoResponseParts for Settle {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}

impl IntoResponse for Outcome {
    fn into_response(self) -> axum::response::Response {
        Response::<Bytes>::from(self).map(Body::from)
    }
}

/// The response with problem details.
impl IntoResponse for Rejection {
    fn into_response(self) -> axum::response::Response {
        Renderer::default().render(self).map(Body::from)
    }
}
