//! The server to probe: sends a request on a connection of its own, and reads the answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::ProbeArgs;
use crate::gateway::trusting;

/// The largest body of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The time between a request that is sent and the end of its connection, where the answer is cut
/// off: long enough for the server to begin.
const CUT_AFTER: Duration = Duration::from_millis(5);

/// A URL with a host, over HTTP or HTTPS.
pub(super) fn uri(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.parse().ok();
    let fits = |uri: &Uri| {
        uri.host().is_some() && [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme())
    };
    uri.filter(fits).ok_or_else(|| "it is not a URL such as http://127.0.0.1:3000/payments".to_owned())
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A request, as far as it differs from others.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: String,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Returns `true` if a client would take the two for the same answer.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.status == other.status && self.body == other.body
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

#[derive(Clone)]
pub(super) struct Target {
    url: Uri,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    patience: Duration,
    trust: Arc<ClientConfig>,
}

impl Target {
    pub(super) fn new(args: &ProbeArgs, patience: Duration) -> Result<Self> {
        Ok(Self {
            url: args.url.clone(),
            method: args.method.clone(),
            headers: args.headers.clone(),
            patience,
            trust: Arc::new(trusting(args.ca.as_deref())?),
        })
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn ask(&self, sent: &Sent) -> Result<Answer> {
        self.within(self.exchange(self.request(&self.url, &self.method, sent)?)).await
    }

    /// Asks for another URL of the same kind of server.
    pub(super) async fn get(&self, url: &Uri) -> Result<Answer> {
        let sent = Sent { headers: Vec::new(), body: String::new() };
        self.within(self.exchange(self.request(url, &Method::GET, &sent)?)).await
    }

    /// Sends a request, and closes the connection before the answer.
    pub(super) async fn cut(&self, sent: &Sent) -> Result<()> {
        let request = self.request(&self.url, &self.method, sent)?;
        let mut sender = self.connect(request.uri()).await?;
        let sending = sender.send_request(origin_form(request)?);
        // An answer that is faster than this is dropped all the same.
        let _ = timeout(CUT_AFTER, sending).await;
        drop(sender);
        // The server notices the end of the connection, or does not.
        sleep(CUT_AFTER).await;
        Ok(())
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(self.patience, work).await.with_context(|| format!("no answer within {:?}", self.patience))?
    }

    fn request(&self, url: &Uri, method: &Method, sent: &Sent) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(Bytes::from(sent.body.clone())));
        *request.uri_mut() = url.clone();
        *request.method_mut() = method.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut seen = Vec::new();
        for (name, value) in &sent.headers {
            // A header of a request replaces that of all requests; twice in one request it is sent
            // twice.
            if !seen.contains(&name) {
                headers.remove(name);
                seen.push(name);
            }
            headers.append(name.clone(), value.clone());
        }
        Ok(request)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let mut sender = self.connect(request.uri()).await?;
        let answer = sender.send_request(origin_form(request)?).await.context("it did not answer")?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error)).context("its answer could not be read")?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    async fn connect(&self, url: &Uri) -> Result<http1::SendRequest<Full<Bytes>>> {
        let host = url.host().context("the URL has no host")?.trim_matches(['[', ']']);
        let secure = url.scheme() == Some(&Scheme::HTTPS);
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tcp = TcpStream::connect((host, port))
            .await
            .with_context(|| format!("could not connect to {host}, port {port}"))?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match secure {
            false => Box::new(tcp),
            true => {
                let name = ServerName::try_from(host.to_owned()).context("the host is not a name")?;
                let tls = TlsConnector::from(Arc::clone(&self.trust)).connect(name, tcp);
                Box::new(tls.await.context("the server's TLS was refused")?)
            }
        };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with its sender, which also gets its errors.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// A request as it is sent to the server itself: the path alone, and the host in its header.
fn origin_form(mut request: Request<Full<Bytes>>) -> Result<Request<Full<Bytes>>> {
    let url = request.uri();
    ensure!(url.authority().is_some(), "the URL has no host");
    let host = match url.port_u16() {
        Some(port) => format!("{}:{port}", url.host().unwrap_or_default()),
        None => url.host().unwrap_or_default().to_owned(),
    };
    let path = url.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    if !request.headers().contains_key(header::HOST) {
        request.headers_mut().insert(header::HOST, host.parse()?);
    }
    *request.uri_mut() = path;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_scheme_and_a_host() {
        for good in ["http://127.0.0.1:3000/payments", "https://api.example/v1?x=1", "http://[::1]:80"] {
            assert!(uri(good).is_ok(), "{good}");
        }
        for bad in ["", "/payments", "127.0.0.1:3000", "ftp://a/"] {
            assert!(uri(bad).is_err(), "{bad}");
        }
    }
}
