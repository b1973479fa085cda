//! The listener for operators: health, metrics, configuration.
//!
//! - `guard`: access by host name and token.
//! - `visitors`: the open connections, of which there is a limited number.

mod guard;
mod visitors;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{interval, sleep};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use guard::Guard;
use visitors::Visitors;

use crate::readiness::Readiness;

/// The interval at which the metrics recorder tidies its samples; without it, memory grows.
const UPKEEP: Duration = Duration::from_secs(5);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The bounds of the histograms: a tenth of a millisecond to a minute.
const SECONDS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];

/// Installs the recorder of metrics.
///
/// # Errors
/// If the process already has a recorder.
pub(crate) fn record() -> Result<PrometheusHandle> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .context("could not set up the metrics")?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).context("could not set up the metrics")?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut often = interval(UPKEEP);
        loop {
            often.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// The data behind the admin listener's answers.
pub(crate) struct Health {
    readiness: Readiness,
    config: Box<dyn Fn() -> Value + Send + Sync>,
    guard: Box<dyn Fn() -> Guard + Send + Sync>,
}

impl Health {
    pub(crate) fn new(
        readiness: Readiness,
        config: impl Fn() -> Value + Send + Sync + 'static,
        guard: impl Fn() -> Guard + Send + Sync + 'static,
    ) -> Self {
        Self { readiness, config: Box::new(config), guard: Box::new(guard) }
    }
}

/// Answers until the handle is dropped.
///
/// # Errors
/// If the listener does not know its address.
pub(crate) fn serve(
    listener: TcpListener,
    health: Health,
    metrics: PrometheusHandle,
) -> Result<AbortOnDropHandle<()>> {
    tracing::info!("admin on {}", listener.local_addr()?);
    let shared = Arc::new((health, metrics));
    let visitors = Visitors::default();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let Ok((io, _)) = listener.accept().await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(own) = io.local_addr() else { continue };
            let shared = Arc::clone(&shared);
            visitors.admit(|visit| async move {
                let answer = service_fn(|request| {
                    let (shared, visit) = (Arc::clone(&shared), visit.clone());
                    async move {
                        let _busy = visit.busy();
                        Ok::<_, Infallible>(answer(&request, own.ip(), &shared.0, &shared.1).await)
                    }
                });
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                // A probe that hangs up already has its answer.
                let _ = server.serve_connection(TokioIo::new(io), answer).await;
            });
        }
    })))
}

async fn answer<B>(
    request: &Request<B>,
    own: IpAddr,
    health: &Health,
    metrics: &PrometheusHandle,
) -> Response<Full<Bytes>> {
    let guard = (health.guard)();
    if !guard.knows_host(request, own) {
        let text = "this listener is not asked under that name; --admin-host NAME allows it\n".to_owned();
        return page(StatusCode::MISDIRECTED_REQUEST, "text/plain", text);
    }
    let is_open = matches!(request.uri().path(), "/livez" | "/readyz");
    let is_trusted = guard.knows_bearer(request);
    if !is_open && !is_trusted {
        let text = "a bearer token is needed: `Authorization: Bearer …` with what --admin-token-file holds\n"
            .to_owned();
        let mut refused = page(StatusCode::UNAUTHORIZED, "text/plain", text);
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    let (status, kind, text) = match request.uri().path() {
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            let mut refused = page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        "/livez" => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        "/readyz" => match health.readiness.check().await {
            Ok(()) => (StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Err(_) if !is_trusted => {
                (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "not ready\n".to_owned())
            }
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("not ready: {why}\n")),
        },
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", metrics.render()),
        "/config" => (StatusCode::OK, "application/json", format!("{:#}\n", (health.config)())),
        "/" => (StatusCode::OK, "text/plain", "/livez\n/readyz\n/metrics\n/config\n".to_owned()),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "there are /livez, /readyz, /metrics and /config\n".to_owned(),
        ),
    };
    page(status, kind, text)
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
