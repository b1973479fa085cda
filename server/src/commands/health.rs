//! `semel health`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::shared::store::StoreArgs;
use crate::config::Span;
use crate::exit::Exit;
use crate::output::{OutputArgs, escaped, json_line, print};
use crate::stores::redacted;

#[derive(Debug, Clone, Args)]
pub(crate) struct HealthArgs {
    /// Ask the admin listener of a gateway, such as http://127.0.0.1:9180, instead of the store
    #[arg(long, value_name = "URL", value_parser = gateway)]
    gateway: Option<Uri>,

    /// How long an answer may take
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    timeout: Span,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The limit for reading an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

fn gateway(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.parse().ok();
    let fits = |uri: &Uri| uri.scheme() == Some(&Scheme::HTTP) && uri.path() == "/" && uri.query().is_none();
    uri.filter(fits).ok_or_else(|| "it is not a URL such as http://127.0.0.1:9180".to_owned())
}

pub(crate) async fn run(args: HealthArgs) -> Result<ExitCode> {
    let what = match &args.gateway {
        Some(uri) => format!("the gateway at {uri}"),
        None => format!("the store {}", redacted(args.store.place()?.store_url())),
    };
    let Span(patience) = args.timeout;
    let answer = timeout(patience, ask(&args));
    let answer = answer.await.unwrap_or_else(|_| bail!("no answer within {}", Span(patience)));
    let why = answer.as_ref().err().map(|error| escaped(&format!("{error:#}")));
    if args.output.is_json() {
        print(&json_line(&json!({ "healthy": why.is_none(), "what": what, "why": why }))?)?;
    } else {
        match &why {
            None => print(&format!("healthy: {what} answers\n"))?,
            Some(why) => print(&format!("unhealthy: {what}: {why}\n"))?,
        }
    }
    Ok(if why.is_none() { ExitCode::SUCCESS } else { Exit::Failed.code() })
}

async fn ask(args: &HealthArgs) -> Result<()> {
    if let Some(uri) = &args.gateway {
        return ask_gateway(uri).await;
    }
    let opened = args.store.open().await?;
    let answer = opened.probe().await;
    opened.close().await;
    Ok(answer?)
}

async fn ask_gateway(uri: &Uri) -> Result<()> {
    let authority = uri.authority().context("the URL has no host")?;
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let stream =
        TcpStream::connect(&address).await.with_context(|| format!("could not connect to {address}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with its sender, which also gets its errors.
    tokio::spawn(connection);
    let request =
        Request::get("/readyz").header(header::HOST, authority.as_str()).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await.context("it did not answer")?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(());
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    bail!("it answered {status}: {}", String::from_utf8_lossy(&body).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_named_by_scheme_host_and_port() {
        for good in ["http://127.0.0.1:9180", "http://[::1]:9180/", "http://gateway"] {
            assert!(gateway(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:9180", "https://a", "http://a/readyz", "http://a/?b", "ftp://a"] {
            assert!(gateway(bad).is_err(), "{bad}");
        }
    }
}
