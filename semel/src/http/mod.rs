//! The `Idempotency-Key` header, as a layer for tower and axum.
//!
//! A client sends a request with a key of its choice. The first request runs; every repeat is
//! answered from the record, with the same status, headers and body. The layer works with any
//! [`Store`](crate::Store) and around any tower service with HTTP bodies.
//!
//! With defaults:
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::post};
//! use semel::MemoryStore;
//! use semel::http::{Anonymous, IdempotencyLayer};
//!
//! async fn charge(body: String) -> String {
//!     format!("charged {body}")
//! }
//!
//! let app: Router = Router::new()
//!     .route("/charges", post(charge))
//!     .layer(IdempotencyLayer::new(MemoryStore::new()).with_anonymous_callers(Anonymous::Share));
//! # }
//! ```
//! `Anonymous::Share` means that callers without credentials are not distinguished: all of them
//! share their keys, and with them the recorded answers. Leave it out where they must not share;
//! requests without credentials are then refused.
//!
//! Customised, for one route, with the user from an authentication layer as the scope:
//! ```
//! # #[cfg(feature = "axum")] {
//! use std::time::Duration;
//!
//! use axum::{Router, http::StatusCode, response::IntoResponse, routing::post};
//! use semel::http::{IdempotencyLayer, RequestFingerprint, Settle};
//! use semel::{Lease, MemoryStore, Policy};
//!
//! #[derive(Clone)]
//! struct User(String);
//!
//! async fn charge(lease: Lease, cents: String) -> impl IntoResponse {
//!     match cents.parse::<u32>() {
//!         // The bank is told the fence, so that it can refuse a lower one.
//!         Ok(cents) => format!("charged {cents} with fence {}", lease.fence()).into_response(),
//!         // Nothing happened: the same key may be used for a better try.
//!         Err(_) => (StatusCode::BAD_REQUEST, Settle::Release, "not a number").into_response(),
//!     }
//! }
//!
//! let layer = IdempotencyLayer::new(MemoryStore::new())
//!     .with_required_key(true)
//!     .with_policy(Policy::hold().with_lease(Duration::from_secs(10)).with_wait(Duration::from_secs(2)))
//!     .with_fingerprint(RequestFingerprint::canonical_json())
//!     .with_realm("shop")
//!     .with_principal(|parts| Some(parts.extensions.get::<User>()?.0.clone()));
//! let app: Router = Router::new().route("/charges", post(charge).route_layer(layer));
//! # }
//! ```
//!
//! # Rules
//!
//! Every request walks one line: read, claim, run, settle, reply.
//!
//! 1. **The key** is a String of structured fields (RFC 9651), `"abc"`, or the same characters
//!    bare. A repeated header, a list, parameters, an empty or overlong value and control bytes are
//!    refused before the body is read or the store is asked. A key with a comma or a semicolon must
//!    be quoted: bare, it cannot be distinguished from a list or parameters.
//! 2. **Methods**: a key counts on POST, PUT, PATCH and DELETE, and is ignored on others. Requests
//!    without a key pass through untouched, unless a key is required, which applies to POST and
//!    PATCH.
//! 3. **Scope**: the same key of two callers is two keys. With
//!    [`IdempotencyLayer::with_principal`] or [`IdempotencyLayer::with_scope`] the application
//!    identifies the caller. Otherwise the credentials of a request do
//!    ([`IdempotencyLayer::with_credentials`]): a repeat with a refreshed token runs again, and a
//!    request without credentials is refused ([`IdempotencyLayer::with_anonymous_callers`]).
//!    Cookies count only by name.
//! 4. **The body** of a request with a key is read whole, up to a limit, before anything is
//!    claimed, and passed on unchanged. Servers that are open to the public should bound the memory
//!    for all bodies: [`IdempotencyLayer::with_memory`].
//! 5. **The same request** has the same method, path, query, content type, content encoding and
//!    body; see [`RequestFingerprint`] for less strict ways. A different request under the same key
//!    is refused, and changes nothing. After a change of these options, repeats of earlier requests
//!    may count as different ones.
//! 6. **The handler** runs to its end: a client that disconnects does not stop it, and its outcome
//!    is recorded. Its lease, in the extensions, is renewed on a task of its own. A panic abandons
//!    the key. It runs while the future of its request is polled, or after that was dropped:
//!    servers do one or the other, and code that calls the service by hand should.
//! 7. **Settling**: a response completes, releases or abandons its key. The handler says which by
//!    [`Settle`]; otherwise the policy and the status decide.
//! 8. **Recorded, then answered.** No caller gets an outcome that is not recorded. The first caller
//!    gets the handler's own response, untouched; if the attempt was taken over in the meantime, it
//!    gets the response of the winner.
//! 9. **Headers** are recorded by an allow list: those that describe the content, the security
//!    headers (`Content-Security-Policy` and similar ones), those of CORS, and the ones you add.
//!    Cookies, credentials and headers of a connection are never recorded. A replay allows the
//!    origin that the first answer allowed.
//! 10. **A replay** carries `Idempotency-Replayed: true`, and `Cache-Control: no-store` unless the
//!     handler set it.
//! 11. **Large and streamed responses** reach the first caller whole and are recorded without their
//!     body: over the limit of the policy, with trailers, of a streaming type such as
//!     `text/event-stream`, or of unknown length and not complete within a second. Repeats get the
//!     status, no body, and `Idempotency-Replay: omitted`. The handler does not run again.
//! 12. **Waiting**: if the policy allows it, a repeat waits for the running attempt, in this
//!     process or another, instead of being refused. At most 1,000 repeats wait for one key and
//!     10,000 in all.
//!
//! # Answers
//!
//! Every refusal is a [`Rejection`] in the extensions of the response, shown as problem details
//! (RFC 9457) with a `code` that never changes, unless [`IdempotencyLayer::with_rejections`]
//! replaces them. No refusal is kept by a cache.
//!
//! | status | code | when |
//! | --- | --- | --- |
//! | 400 | `idempotency_key_missing` | a key is required, and the request has none |
//! | 400 | `idempotency_key_invalid` | the header does not contain exactly one key; `detail` names the reason |
//! | 400 | `idempotency_scope_missing` | the request has none of the credentials that distinguish callers |
//! | 400 | `request_unreadable` | the body broke off |
//! | 408 | `request_timeout` | the body did not arrive in time |
//! | 409 | `idempotency_key_pending` | an attempt runs; `Retry-After` is the rest of its lease |
//! | 409 | `idempotency_outcome_unknown` | an attempt was lost; `attempt` and `since` identify it. A new key is not safe |
//! | 413 | `request_too_large` | the body is over the limit |
//! | 422 | `idempotency_key_reused` | the key was used for another request, which may still run |
//! | 500 | `handler_failed` | the handler panicked, and its effects are unknown |
//! | 500 | `outcome_unrecorded` | the store refused the outcome; the key is held |
//! | 500 | `completion_missing` | the handler succeeded under `transactional` without recording its outcome in its transaction; the key is held |
//! | 500 | `scope_unknown` | the application did not identify the caller |
//! | 502 | `upstream_broke_off` | the response broke off, where [responses have to be whole](IdempotencyLayer::with_whole_responses) |
//! | 503 | `memory_exhausted` | there is no room in the [`Memory`] of the layer; nothing was claimed, and nothing ran |
//! | 503 | `store_unavailable` | the store does not answer, and nothing ran |
//! | 429 | `idempotency_quota_exceeded` | the caller has too many unsettled keys, or used too many new ones, and nothing ran |
//! | 503 | `too_many_attempts` | the limit of running attempts is reached, and nothing ran |
//! | 503 | `store_full` | the store has reached its ceiling, the key is new, and nothing ran |
//! | 503 | `outcome_pending` | the request was carried out, but its outcome is not recorded yet; a repeat will show it |
//!
//! # The order of layers
//!
//! Authentication and authorisation belong **outside** this layer, so that they also check replays.
//! So do timeouts, compression and CORS: a timeout inside would cut off handlers half way, and an
//! answer that was compressed for one client would be replayed to another. With axum, the layer
//! that is added last is the outermost, and `route_layer` leaves out the fallbacks.
//!
//! One layer is enough for a request. Of two, the outer one counts.
//!
//! Data from an outer layer for the handler belongs in the extensions of the request. A
//! `task_local!` exists only until the client disconnects: then the handler moves to another task,
//! and a handler that reads it panics half way, which holds its key. Spans move with the handler. A
//! nested router of axum takes the prefix off the path: turn on the feature `axum`, with which the
//! whole path counts. The inner service gets its requests with [`ReadAhead`] bodies, which every
//! layer added by `Router::layer` accepts; a layer that accepts only the bodies of axum, such as
//! `from_fn` within one `ServiceBuilder`, needs a `map_request` in between.
//!
//! # Limits
//!
//! A handler continues when its client disconnects, which frees the place of that client. So a
//! limit on connections, or on requests, does not bound handlers;
//! [`IdempotencyLayer::with_max_attempts`] does. When that limit is reached, replays and refusals
//! are still answered from the records, and a request that would run is refused as
//! `too_many_attempts`, with nothing claimed.
//!
//! A `ConcurrencyLimit` of tower belongs **outside** this layer, where it bounds the requests that
//! are read and answered, replays and waiting repeats included: together with the largest body, it
//! bounds memory. It releases its permit when the client disconnects, so it needs the limit of
//! attempts beside it. **Inside** this layer it makes attempts wait for a permit with their key
//! claimed and their lease running: repeats get 409 for work that has not begun, and each waiting
//! attempt is one more that a crash leaves held. A `LoadShed` inside answers such an attempt with
//! an error, which holds its key although nothing happened.
//!
//! [`IdempotencyLayer::with_max_unsettled_per_caller`] and
//! [`IdempotencyLayer::with_max_new_per_caller`] bound the use of one caller, and
//! [`IdempotencyLayer::with_ceiling`] the size of the store. All of them are counted in this
//! process; none asks the store anything before a claim.
//!
//! # Expired records
//!
//! Over a store that keeps them, the layer removes expired records in the background, from its
//! first request with a key on; see [`Once::with_pruning`](crate::Once::with_pruning).
//! [`IdempotencyLayer::without_pruning`] leaves that to another program.
//!
//! # Shutting down
//!
//! When the server begins to stop, [`IdempotencyLayer::end_waits`] ends the waits of repeats for
//! running attempts. When it has stopped, [`IdempotencyLayer::drain`] waits for handlers whose
//! clients have disconnected.

mod request;
mod response;
mod reply;
mod layer;
mod service;
#[cfg(feature = "axum")]
mod axum;

pub use crate::http::layer::IdempotencyLayer;
pub use crate::http::layer::options::IDEMPOTENCY_KEY;
pub use crate::http::reply::outcome::{IDEMPOTENCY_REPLAY, IDEMPOTENCY_REPLAYED};
pub use crate::http::reply::problem::ProblemType;
pub use crate::http::reply::rejection::Rejection;
pub use crate::http::request::body::ReadAhead;
pub use crate::http::request::credentials::Credential;
pub use crate::http::request::fingerprint::{PointerError, RequestFingerprint};
pub use crate::http::request::key::{KeyFault, parse as parse_key};
pub use crate::http::request::memory::Memory;
pub use crate::http::request::others::{PROXY_HEADERS, is_of_proxy, suggests_others};
pub use crate::http::request::scope::Anonymous;
pub use crate::http::response::headers::{HOP_BY_HOP, HeaderRefused, may_record};
pub use crate::http::response::settle::Settle;
pub use crate::http::service::Idempotency;
