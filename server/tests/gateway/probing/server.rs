//! A small payment service with idempotency of its own, and one mistake if wanted. The mistakes are
//! those of libraries that are in use.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// The time that a payment takes.
const WORK: Duration = Duration::from_millis(30);
/// The longest key that a server which cuts keys off keeps.
const CUT_OFF: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The key is not looked at.
    Ignores,
    /// A record is looked for before the work and written after it.
    LooksThenActs,
    /// The request is not compared with the first one.
    ComparesNothing,
    /// A used key with another request runs, and gets the new answer.
    RunsOtherRequests,
    /// The refusal of another request becomes the answer of the key.
    OverwritesByRefusal,
    /// The refusal of another request shows the first answer.
    ShowsFirstAnswer,
    /// The key counts with its quotes.
    KeepsQuotes,
    /// Of two keys the first counts.
    TakesFirstOfTwo,
    /// Long keys are cut off.
    CutsOffKeys,
    /// Letter case does not count.
    LowersCase,
    /// The cookie of the first answer is repeated.
    ReplaysCookies,
    /// The first answer is marked as a repeat.
    MarksEverything,
    /// The work ends with its client, and the key stays in use.
    SticksWithoutClient,
    /// The key is free again when its client leaves, although the payment was made.
    FreesWithoutClient,
    /// All callers share their keys.
    SharesKeys,
    /// All answers are the same: no mistake, but a second run cannot be seen.
    AnswersAlike,
}

impl Mistake {
    /// All that a probe should find.
    pub(crate) const ALL: [Self; 15] = [
        Self::Ignores,
        Self::LooksThenActs,
        Self::ComparesNothing,
        Self::RunsOtherRequests,
        Self::OverwritesByRefusal,
        Self::ShowsFirstAnswer,
        Self::KeepsQuotes,
        Self::TakesFirstOfTwo,
        Self::CutsOffKeys,
        Self::LowersCase,
        Self::ReplaysCookies,
        Self::MarksEverything,
        Self::SticksWithoutClient,
        Self::FreesWithoutClient,
        Self::SharesKeys,
    ];

    /// The check that finds it.
    pub(crate) fn found_by(self) -> &'static str {
        match self {
            Self::Ignores => "repeat",
            Self::LooksThenActs => "race",
            Self::ComparesNothing | Self::RunsOtherRequests | Self::ShowsFirstAnswer => "other-request",
            Self::OverwritesByRefusal => "after-refusal",
            Self::KeepsQuotes => "quotes",
            Self::TakesFirstOfTwo => "two-keys",
            Self::CutsOffKeys => "long-keys",
            Self::LowersCase => "letter-case",
            Self::ReplaysCookies => "cookies",
            Self::MarksEverything => "mark",
            Self::SticksWithoutClient | Self::FreesWithoutClient => "cut",
            Self::SharesKeys => "other-caller",
            Self::AnswersAlike => "nothing",
        }
    }

    /// Returns `true` if no other check finds it.
    pub(crate) fn is_alone(self) -> bool {
        !matches!(
            self,
            Self::Ignores
                | Self::LooksThenActs
                | Self::ComparesNothing
                | Self::RunsOtherRequests
                | Self::OverwritesByRefusal
        )
    }
}

/// An answer that can be given again.
#[derive(Debug, Clone)]
struct Kept {
    status: StatusCode,
    body: String,
    cookie: bool,
}

/// A key in use: its request, and the answer once there is one.
#[derive(Debug, Clone)]
struct Record {
    request: Bytes,
    answer: Option<Kept>,
}

struct Service {
    mistake: Option<Mistake>,
    records: Mutex<HashMap<String, Record>>,
    effects: AtomicU64,
}

/// The service on a port of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl Server {
    pub(crate) async fn start(mistake: Option<Mistake>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Arc::new(Service { mistake, records: Mutex::default(), effects: AtomicU64::new(0) });
        let accepting = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = Arc::clone(&service);
                tokio::spawn(http1::Builder::new().serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let service = Arc::clone(&service);
                        async move { Ok::<_, Infallible>(service.serve(request).await) }
                    }),
                ));
            }
        }));
        Self { address, _accepting: accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Service {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/effects" => return plain(StatusCode::OK, self.effects.load(Ordering::SeqCst).to_string()),
            "/payments" => {}
            _ => return plain(StatusCode::NOT_FOUND, "there is nothing here".to_owned()),
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return plain(StatusCode::BAD_REQUEST, "the body cannot be read".to_owned());
        };
        let body = body.to_bytes();
        match self.key(&parts.headers) {
            Err(reason) => plain(StatusCode::BAD_REQUEST, reason.to_owned()),
            Ok(None) => answer(&self.pay().await, false),
            Ok(Some(_)) if self.has(Mistake::Ignores) => answer(&self.pay().await, false),
            Ok(Some(key)) => self.once(key, body).await,
        }
    }

    /// The key with its caller, or the reason why there is none.
    fn key(&self, headers: &HeaderMap) -> Result<Option<String>, &'static str> {
        let keys: Vec<&str> =
            headers.get_all("idempotency-key").iter().filter_map(|key| key.to_str().ok()).collect();
        let Some(first) = keys.first() else { return Ok(None) };
        if keys.len() > 1 && !self.has(Mistake::TakesFirstOfTwo) {
            return Err("there are several keys");
        }
        let mut key = match self.has(Mistake::KeepsQuotes) {
            true => (*first).to_owned(),
            false => first.trim_matches('"').to_owned(),
        };
        if self.has(Mistake::CutsOffKeys) {
            key.truncate(CUT_OFF);
        }
        if self.has(Mistake::LowersCase) {
            key.make_ascii_lowercase();
        }
        let caller = headers.get("authorization").and_then(|caller| caller.to_str().ok()).unwrap_or_default();
        let caller = if self.has(Mistake::SharesKeys) { "" } else { caller };
        Ok(Some(format!("{caller} {key}")))
    }

    async fn once(self: Arc<Self>, key: String, request: Bytes) -> Response<Full<Bytes>> {
        if let Some(response) = self.known(&key, &request) {
            return response;
        }
        let leaves = [Mistake::SticksWithoutClient, Mistake::FreesWithoutClient];
        if leaves.into_iter().any(|mistake| self.has(mistake)) {
            // The work is a part of this future, which ends with the client.
            let guard = Guard { service: &self, key: &key };
            let kept = self.pay().await;
            guard.done();
            self.keep(&key, request, &kept);
            return answer(&kept, false);
        }
        let service = Arc::clone(&self);
        let working = tokio::spawn(async move {
            let kept = service.pay().await;
            service.keep(&key, request, &kept);
            kept
        });
        answer(&working.await.unwrap(), self.has(Mistake::MarksEverything))
    }

    /// The response to a key in use; otherwise the key is in use from now on.
    fn known(&self, key: &str, request: &Bytes) -> Option<Response<Full<Bytes>>> {
        let mut records = self.records.lock().unwrap();
        let Some(record) = records.get_mut(key) else {
            if !self.has(Mistake::LooksThenActs) {
                records.insert(key.to_owned(), Record { request: request.clone(), answer: None });
            }
            return None;
        };
        let is_other = record.request != request && !self.has(Mistake::ComparesNothing);
        if is_other && self.has(Mistake::RunsOtherRequests) {
            record.request = request.clone();
            record.answer = None;
            return None;
        }
        if is_other {
            let first = record.answer.as_ref().map(|kept| kept.body.clone()).unwrap_or_default();
            let text = match self.has(Mistake::ShowsFirstAnswer) {
                true => format!("the key was used for another request, which was answered {first}"),
                false => "the key was used for another request".to_owned(),
            };
            if self.has(Mistake::OverwritesByRefusal) {
                let refusal =
                    Kept { status: StatusCode::UNPROCESSABLE_ENTITY, body: text.clone(), cookie: false };
                *record = Record { request: request.clone(), answer: Some(refusal) };
            }
            return Some(plain(StatusCode::UNPROCESSABLE_ENTITY, text));
        }
        let Some(kept) = &record.answer else {
            let mut early = plain(StatusCode::CONFLICT, "the first request is in progress".to_owned());
            early.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
            return Some(early);
        };
        let cookie = kept.cookie && self.has(Mistake::ReplaysCookies);
        Some(answer(&Kept { cookie, ..kept.clone() }, true))
    }

    fn keep(&self, key: &str, request: Bytes, kept: &Kept) {
        let record = Record { request, answer: Some(kept.clone()) };
        self.records.lock().unwrap().insert(key.to_owned(), record);
    }

    /// Makes a payment.
    async fn pay(&self) -> Kept {
        let number = self.effects.fetch_add(1, Ordering::SeqCst) + 1;
        sleep(WORK).await;
        let number = if self.has(Mistake::AnswersAlike) { 0 } else { number };
        Kept { status: StatusCode::CREATED, body: format!(r#"{{"payment":{number}}}"#), cookie: true }
    }
}

/// Gives a key back when it is dropped, in a server that makes this mistake.
struct Guard<'a> {
    service: &'a Service,
    key: &'a str,
}

impl Guard<'_> {
    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.service.has(Mistake::FreesWithoutClient) {
            self.service.records.lock().unwrap().remove(self.key);
        }
    }
}

fn answer(kept: &Kept, is_repeat: bool) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(kept.status).header("content-type", "application/json");
    if is_repeat {
        response = response.header("idempotent-replayed", "true");
    }
    if kept.cookie {
        response = response.header("set-cookie", "session=1");
    }
    response.body(Full::new(Bytes::from(kept.body.clone()))).unwrap()
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(Bytes::from(text))).unwrap()
}
