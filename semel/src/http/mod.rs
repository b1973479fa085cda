//! The `Idempotency-Key` header, as a layer for tower and axum.

mod layer;
mod service;
mod read;
mod key;
mod scope;
mod fingerprint;
mod body;
mod run;
mod verdict;
mod headers;
mod reply;
mod rejection;
mod published;
#[cfg(feature = "axum")]
mod axum;

pub use body::ReadAhead;
pub use fingerprint::{PointerError, RequestFingerprint};
pub use headers::HeaderRefused;
pub use key::{KeyFault, parse as parse_key};
pub use layer::IdempotencyLayer;
pub use rejection::Rejection;
pub use service::Idempotency;
pub use verdict::Verdict;
