//! Clients that retry correctly, and log every request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request as HttpRequest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::checker::OUTCOME_UNKNOWN;
use crate::clock;
use crate::event::{Answer, Request};
use crate::log::Log;
use crate::work::Work;

/// The time limit for an answer after healing.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// An operation that a caller wants done once.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) caller: String,
    pub(crate) work: Work,
}

/// The state of an errand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The errand has its outcome, or another intent has the key.
    Settled,
    /// Only an operator, or an attempt that has been silent for long, can settle the key.
    Held,
    Open,
}

/// The client side of the service, which may use any of its processes. Clones share their
/// connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    targets: Arc<[SocketAddr]>,
    log: Log,
    /// Cancelled when all clients stop waiting.
    stop: CancellationToken,
    held_is_an_end: bool,
}

impl Client {
    /// A client of these processes. If no process is killed, a held key will be settled, so it is
    /// not an end; and if outcomes expire soon, a client that pauses would miss an outcome that
    /// comes late.
    pub(crate) fn new(targets: Arc<[SocketAddr]>, log: Log, held_is_an_end: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // Automatic retries are disabled, so that every try is logged.
        let http = Http::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector);
        Self { http, targets, log, stop: CancellationToken::new(), held_is_an_end }
    }

    /// Makes all clients disconnect, also from requests in progress. Only later requests are still
    /// sent.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sends a request once, to a random process, and logs the answer. Some clients disconnect
    /// before the answer.
    pub(crate) async fn send(&self, errand: &Errand, after: bool, chance: &mut StdRng) -> Result<Answer> {
        let target = self.targets[chance.random_range(0..self.targets.len())];
        let limit = match chance.random_range(0..100) {
            _ if after => ANSWER_LIMIT,
            0..3 => Duration::from_millis(chance.random_range(1..20)),
            _ => Duration::from_millis(chance.random_range(300..3_000)),
        };
        let sent_at = clock::now();
        let answer = tokio::select! {
            biased;
            answer = timeout(limit, self.ask(target, errand)) => answer.ok().and_then(Result::ok),
            () = self.stop.cancelled(), if !after => None,
        };
        let answer = answer.unwrap_or(Answer::Lost);
        let Errand { caller, work } = errand.clone();
        self.log.write(&Request {
            caller,
            key: work.key,
            intent: work.intent,
            sent_at,
            ended_at: clock::now(),
            after,
            answer: answer.clone(),
        })?;
        Ok(answer)
    }

    async fn ask(&self, target: SocketAddr, errand: &Errand) -> Result<Answer> {
        let request = HttpRequest::post(format!("http://{target}/effects"))
            .header("idempotency-key", &errand.work.key)
            .header(AUTHORIZATION, &errand.caller)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(&errand.work)?))?;
        let (head, body) = self.http.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let status = head.status.as_u16();
        let replayed = head.headers.contains_key("idempotency-replayed");
        let value = |name| head.headers.get(name).map_or(&b""[..], |value: &HeaderValue| value.as_bytes());
        if value(CONTENT_TYPE) == b"application/json" {
            let recorded =
                [value(CONTENT_TYPE), b"\n", value(LOCATION), b"\n", value(ETAG), b"\n", &body].concat();
            let digest = Sha256::digest(recorded);
            let digest = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok(match serde_json::from_slice(&body) {
                Ok(body) => Answer::Outcome { status, replayed, digest, body },
                Err(_) => Answer::Refused { status, code: "no receipt".to_owned() },
            });
        }
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer::Refused { status, code: problem["code"].as_str().unwrap_or_default().to_owned() })
    }

    /// Sends an errand until it is settled or the time is over.
    pub(crate) async fn run(
        &self,
        errand: &Errand,
        after: bool,
        until: u64,
        chance: &mut StdRng,
    ) -> Result<Standing> {
        loop {
            let (standing, pause_ms) = match self.send(errand, after, chance).await? {
                Answer::Outcome { .. } | Answer::Refused { status: 422, .. } => (Standing::Settled, 0),
                Answer::Refused { status: 409, code } if code == OUTCOME_UNKNOWN => (Standing::Held, 100),
                Answer::Refused { status: 409, .. } => (Standing::Open, 50),
                Answer::Refused { .. } | Answer::Lost => (Standing::Open, 20),
            };
            let is_end = match standing {
                Standing::Settled => true,
                Standing::Held => self.held_is_an_end,
                Standing::Open => false,
            };
            if is_end || clock::now() > until || !after && self.stop.is_cancelled() {
                return Ok(standing);
            }
            // The pause is random, so that clients that were refused together do not return
            // together.
            sleep(Duration::from_millis(chance.random_range(pause_ms..=4 * pause_ms))).await;
        }
    }
}
