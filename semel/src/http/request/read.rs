//! The step *read*: the key of a request, and its intent.

use std::pin::pin;

use ::http::Request;
use ::http::request::Parts;
use bytes::Bytes;
use http_body::Body;
use tokio::time::timeout;

use crate::http::layer::IdempotencyLayer;
use crate::http::layer::options::Options;
use crate::http::reply::published::asks_for_key;
use crate::http::reply::rejection::Rejection;
use crate::http::request::body::{ReadAhead, Unread, read_request};
use crate::http::request::key;
use crate::http::request::scope::Caller;
use crate::words::intent::Intent;
use crate::words::key::{Key, Scope};
use crate::words::text::shorten;

/// The approximate size of each field of a head beside its name and value.
const FIELD: usize = 128;

/// A request with a key, read to its end.
pub(in crate::http) struct Asked<Q: Body> {
    pub(in crate::http) key: Key,
    pub(in crate::http) intent: Intent,
    pub(in crate::http) parts: Box<Parts>,
    pub(in crate::http) body: ReadAhead<Q>,
}

/// The mark of a request that passed a layer without a key, so that a handler that needs a lease
/// can name the reason.
#[cfg(feature = "axum")]
#[derive(Debug, Clone)]
pub(in crate::http) struct Unkeyed(pub(in crate::http) crate::http::reply::renderer::Renderer);

/// A request that is passed on unchanged.
pub(in crate::http) fn unkeyed<Q: Body>(
    #[cfg_attr(not(feature = "axum"), expect(unused_variables))] options: &Options,
    #[cfg_attr(not(feature = "axum"), expect(unused_mut))] mut parts: Parts,
    body: Q,
) -> Request<ReadAhead<Q>> {
    #[cfg(feature = "axum")]
    parts.extensions.insert(Unkeyed(options.renderer.clone()));
    Request::from_parts(parts, ReadAhead::passed(body))
}

/// A key as far as it is known without asking the store.
pub(in crate::http) enum Named {
    Key(Key),
    /// The key with this value in this realm, of the caller with the credentials of the request.
    OfCredentials {
        realm: Scope,
        value: Box<str>,
    },
}

/// The key that counts; `None` if there is none, or it does not count on this method.
pub(in crate::http) fn key_of(layer: &IdempotencyLayer, parts: &Parts) -> Result<Option<Named>, Rejection> {
    let options = &layer.options;
    if !options.methods.contains(&parts.method) {
        return Ok(None);
    }
    let value = match key::read(&parts.headers, &options.header, options.strict) {
        Ok(Some(value)) => value,
        Ok(None) if options.required && asks_for_key(&parts.method) => return Err(Rejection::KeyMissing),
        Ok(None) => return Ok(None),
        Err(fault) => return Err(Rejection::KeyInvalid(fault)),
    };
    let scope = match options.scoping.caller(parts)? {
        Caller::Known(scope) => scope,
        Caller::With(realm) => match options.secret.known(layer.once.store()) {
            Some(digest) => options.scoping.with_credentials(realm, &digest, parts),
            None => return Ok(Some(Named::OfCredentials { realm, value: value.into() })),
        },
    };
    in_scope(&scope, &value).map(|key| Some(Named::Key(key)))
}

/// The key of a request, with the secret of the store if the key depends on it.
async fn known(layer: &IdempotencyLayer, named: Named, parts: &Parts) -> Result<Key, Rejection> {
    let (realm, value) = match named {
        Named::Key(key) => return Ok(key),
        Named::OfCredentials { realm, value } => (realm, value),
    };
    let digest = Box::pin(layer.options.secret.digest(layer.once.store())).await.map_err(|error| {
        tracing::error!(%error, "callers cannot be distinguished");
        Rejection::StoreUnavailable
    })?;
    in_scope(&layer.options.scoping.with_credentials(realm, &digest, parts), &value)
}

fn in_scope(scope: &Scope, value: &str) -> Result<Key, Rejection> {
    scope.key(value).map_err(|error| Rejection::KeyInvalid(error.into()))
}

/// Reads a request with a key to its end.
pub(in crate::http) async fn read<Q: Body<Data = Bytes>>(
    layer: &IdempotencyLayer,
    named: Named,
    parts: Box<Parts>,
    body: Q,
) -> Result<Asked<Q>, Rejection> {
    let key = known(layer, named, &parts).await?;
    let options = &layer.options;
    let memory = options.memory.as_ref();
    let head = memory.map_or(0, |_| head_bytes(&parts));
    let largest = memory.map_or(usize::MAX, |memory| memory.largest_request().saturating_sub(head));
    let limit = largest.min(options.max_request_bytes);
    let read = pin!(read_request(body, head, limit, options.least_rate, memory));
    let read = timeout(options.request_timeout, read);
    let (body, trailers) =
        read.await.map_err(|_| Rejection::RequestTimeout)?.map_err(|unread| match unread {
            Unread::TooLarge => Rejection::RequestTooLarge(limit),
            Unread::TooSlow => Rejection::RequestTimeout,
            Unread::NoRoom => Rejection::MemoryExhausted,
            Unread::Failed => Rejection::RequestUnreadable,
        })?;
    let intent = intent(options, &parts, &body);
    Ok(Asked { key, intent, parts, body: ReadAhead::whole_with(body, trailers) })
}

/// The approximate size of the head of a request.
fn head_bytes(parts: &Parts) -> usize {
    let fields = parts.headers.iter().map(|(name, value)| FIELD + name.as_str().len() + value.len());
    parts.uri.path().len() + parts.uri.query().map_or(0, str::len) + fields.sum::<usize>()
}

/// Method and path for people, and a fingerprint of everything.
fn intent(options: &Options, parts: &Parts, body: &[u8]) -> Intent {
    let uri = original_uri(parts);
    let path = options.path.as_ref().and_then(|compared| compared(uri.path()));
    let whole = path.as_ref().map(|path| match uri.query() {
        Some(query) => [path, "?", query].concat(),
        None => path.clone(),
    });
    let sent = || uri.path_and_query().map_or("", |path| path.as_str());
    let fingerprint = options.fingerprint.of(parts, whole.as_deref().unwrap_or_else(sent), body);
    let operation = [parts.method.as_str(), " ", path.as_deref().unwrap_or(uri.path())].concat();
    Intent::new(&operation, "", fingerprint).unwrap_or_else(|_| {
        Intent::new(&shorten(&operation, Intent::MAX_OPERATION_BYTES), "", fingerprint)
            .expect("text that is not empty, without control characters, within the limit")
    })
}

/// The URI as the client sent it. A router may have removed a prefix for a nested one; the prefix
/// counts, too.
#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> &::http::Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(parts: &Parts) -> &::http::Uri {
    &parts.uri
}
