//! The fingerprint of a request, in 32 bytes.

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName};
use ::http::request::Parts;
use thiserror::Error;

use crate::words::fingerprint::{Fingerprint, Framer, canonical, strict_json};

/// The choice of the parts that make a request the same request.
///
/// Method, path and query, content type and content encoding always count. Every byte of the body
/// counts, unless set otherwise. Chunks do not count.
///
/// ```
/// use semel::http::RequestFingerprint;
///
/// let exact = RequestFingerprint::raw();
/// let tolerant = RequestFingerprint::canonical_json().with_header("x-tenant".parse()?);
/// let chosen = RequestFingerprint::fields(&["/to", "/amount"])?;
/// assert!(RequestFingerprint::fields(&["amount"]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RequestFingerprint {
    body: BodyPart,
    headers: Vec<HeaderName>,
    authority: bool,
}

/// The part of the body that counts.
#[derive(Debug, Clone)]
enum BodyPart {
    Raw,
    CanonicalJson,
    /// JSON pointers (RFC 6901).
    Fields(Vec<String>),
}

impl RequestFingerprint {
    /// A fingerprint of every byte of the body, which is the default.
    pub fn raw() -> Self {
        Self { body: BodyPart::Raw, headers: Vec::new(), authority: false }
    }

    /// A fingerprint of the body in its canonical form (RFC 8785): white space, the order of keys
    /// and the spelling of numbers do not matter. A body without a canonical form counts byte for
    /// byte: one that is not JSON, has a key twice in an object, or an integer beyond 2^53.
    pub fn canonical_json() -> Self {
        Self { body: BodyPart::CanonicalJson, ..Self::raw() }
    }

    /// A fingerprint of only these fields of a JSON body, each in its canonical form, or as absent.
    /// The fields are JSON pointers (RFC 6901), such as `/amount` or `/lines/0/sku`. A body without
    /// a canonical form, see [`RequestFingerprint::canonical_json`], counts byte for byte.
    ///
    /// # Errors
    /// [`PointerError`] if a pointer does not begin with `/`.
    pub fn fields(pointers: &[&str]) -> Result<Self, PointerError> {
        if let Some(wrong) = pointers.iter().find(|pointer| !pointer.starts_with('/')) {
            return Err(PointerError { found: (*wrong).to_owned() });
        }
        let fields = pointers.iter().map(|pointer| (*pointer).to_owned()).collect();
        Ok(Self { body: BodyPart::Fields(fields), ..Self::raw() })
    }

    /// Adds all values of this header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName) -> Self {
        self.headers.push(name);
        self
    }

    /// Adds the host, for services that are distinguished by it.
    #[must_use]
    pub fn with_authority(self) -> Self {
        Self { authority: true, ..self }
    }

    /// The name of the part of the body that counts, for clients.
    pub(in crate::http) fn describe(&self) -> &'static str {
        match self.body {
            BodyPart::Raw => "bytes",
            BodyPart::CanonicalJson => "canonical-json",
            BodyPart::Fields(_) => "json-fields",
        }
    }

    /// The fingerprint of a request with this path and query.
    pub fn of(&self, parts: &Parts, path: &str, body: &[u8]) -> Fingerprint {
        let mut framer = Framer::new("http request");
        framer.part(parts.method.as_str().as_bytes());
        framer.part(path.as_bytes());
        for name in [&CONTENT_TYPE, &CONTENT_ENCODING].into_iter().chain(&self.headers) {
            header(&mut framer, &parts.headers, name);
        }
        if self.authority {
            tagged(&mut framer, b"authority", authority(parts));
        }
        match &self.body {
            BodyPart::Raw => raw(&mut framer, body),
            BodyPart::CanonicalJson => match strict_json(body).and_then(|tree| canonical(&tree)) {
                Ok(json) => tagged(&mut framer, b"canonical json", &json),
                Err(_) => raw(&mut framer, body),
            },
            BodyPart::Fields(pointers) => match chosen(pointers, body) {
                Some(fields) => fields.into_iter().for_each(|field| match field {
                    Some(json) => tagged(&mut framer, b"field", &json),
                    None => framer.part(b"no field"),
                }),
                None => raw(&mut framer, body),
            },
        }
        framer.finish()
    }
}

impl Default for RequestFingerprint {
    fn default() -> Self {
        Self::raw()
    }
}

fn tagged(framer: &mut Framer, tag: &[u8], part: &[u8]) {
    framer.part(tag);
    framer.part(part);
}

fn raw(framer: &mut Framer, body: &[u8]) {
    tagged(framer, b"bytes", body);
}

/// The requested host: HTTP/2 has it in the URI, HTTP/1.1 in a header.
fn authority(parts: &Parts) -> &[u8] {
    match parts.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => parts.headers.get(HOST).map_or(b"", |host| host.as_bytes()),
    }
}

/// Adds all values of a header, and their number.
fn header(framer: &mut Framer, headers: &HeaderMap, name: &HeaderName) {
    let values = headers.get_all(name);
    framer.part(&(values.iter().count() as u64).to_be_bytes());
    values.iter().for_each(|value| framer.part(value.as_bytes()));
}

/// The canonical form of each field, or its absence; `None` if the body has no fields.
fn chosen(pointers: &[String], body: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let tree = strict_json(body).ok()?;
    let field = |pointer: &String| tree.pointer(pointer).map(canonical).transpose().ok();
    pointers.iter().map(field).collect()
}

/// A text that is not a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found:?} is not a JSON pointer: it does not begin with a slash")]
pub struct PointerError {
    found: String,
}

#[cfg(test)]
mod tests {
    use ::http::Request;

    use super::*;

    fn print(by: &RequestFingerprint, change: impl FnOnce(&mut Request<()>), body: &str) -> Fingerprint {
        let mut request =
            Request::post("/charges?a=1").header("content-type", "application/json").body(()).unwrap();
        change(&mut request);
        let (parts, ()) = request.into_parts();
        let path = parts.uri.path_and_query().unwrap().as_str().to_owned();
        by.of(&parts, &path, body.as_bytes())
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let raw = RequestFingerprint::raw();
        let one = print(&raw, |_| {}, "{}");
        assert_eq!(one, print(&raw, |_| {}, "{}"));
        assert_ne!(one, print(&raw, |_| {}, "{ }"));
        assert_ne!(one, print(&raw, |r| *r.method_mut() = ::http::Method::PUT, "{}"));
        assert_ne!(one, print(&raw, |r| *r.uri_mut() = "/charges?a=2".parse().unwrap(), "{}"));
        assert_ne!(one, print(&raw, |r| *r.uri_mut() = "/charge?a=1".parse().unwrap(), "{}"));
        assert_ne!(one, print(&raw, |r| drop(r.headers_mut().remove("content-type")), "{}"));
        let encoded =
            |r: &mut Request<()>| drop(r.headers_mut().insert("content-encoding", "gzip".parse().unwrap()));
        assert_ne!(one, print(&raw, encoded, "{}"));
        let other = |r: &mut Request<()>| drop(r.headers_mut().insert("x-tenant", "b".parse().unwrap()));
        assert_eq!(one, print(&raw, other, "{}"));
        let by_tenant = raw.with_header(HeaderName::from_static("x-tenant"));
        assert_ne!(print(&by_tenant, |_| {}, "{}"), print(&by_tenant, other, "{}"));
    }

    #[test]
    fn the_host_counts_if_it_should_wherever_it_stands() {
        let by_host = RequestFingerprint::raw().with_authority();
        let header = |host: &'static str| {
            print(&by_host, |r| drop(r.headers_mut().insert("host", host.parse().unwrap())), "{}")
        };
        let uri = print(&by_host, |r| *r.uri_mut() = "http://a.example/charges?a=1".parse().unwrap(), "{}");
        assert_eq!(header("a.example"), uri);
        assert_ne!(header("b.example"), uri);
    }

    #[test]
    fn canonical_json_tolerates_what_json_does_not_mean() {
        let json = RequestFingerprint::canonical_json();
        let of = |body: &str| print(&json, |_| {}, body);
        assert_eq!(of(r#"{"a": 1.0, "b": [2]}"#), of(r#"{"b":[2],"a":1}"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
        // A body without a canonical form counts byte for byte.
        assert_ne!(of(r#"{"a":9007199254740993}"#), of(r#"{"a":9007199254740992}"#));
        assert_ne!(of(r#"{"a":1,"a":2}"#), of(r#"{"a":2}"#));
        assert_ne!(of("not json"), of("not  json"));
        assert_eq!(of("not json"), of("not json"));
    }

    #[test]
    fn only_chosen_fields_count() {
        let by = RequestFingerprint::fields(&["/amount", "/to/name"]).unwrap();
        let of = |body: &str| print(&by, |_| {}, body);
        let one = of(r#"{"amount": 5, "to": {"name": "ann"}, "sent_at": 1}"#);
        assert_eq!(one, of(r#"{"sent_at": 2, "to": {"name": "ann"}, "amount": 5.0}"#));
        assert_ne!(one, of(r#"{"amount": 6, "to": {"name": "ann"}}"#));
        assert_ne!(one, of(r#"{"amount": 5}"#));
        assert_ne!(of(r#"{"amount": null}"#), of("{}"));
        assert_ne!(of("x"), of("y"));
    }
}
