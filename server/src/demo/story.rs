//! The requests of the demo to its payment service, each a case that usually goes wrong.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel::Outcome;
use semel::admin::{Inspect, ListQuery, OperatorAck};
use semel::http::{IDEMPOTENCY_KEY, IDEMPOTENCY_REPLAYED};
use serde_json::Value;
use tokio::net::TcpStream;

use super::service::{Bank, Payment, Receipt};

/// The number of concurrent repeats.
const AT_ONCE: usize = 32;
/// The largest width of the table on a terminal.
const WIDTH: u16 = 110;

/// The story, told as a table.
pub(super) struct Story {
    gateway: SocketAddr,
    bank: Arc<Bank>,
    store: Arc<dyn Inspect>,
    pub(super) table: Table,
    pub(super) requests: usize,
}

impl Story {
    pub(super) fn new(gateway: SocketAddr, bank: Arc<Bank>, store: Arc<dyn Inspect>) -> Self {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH)
            .set_header(["what was asked", "what ran", "what was answered"]);
        Self { gateway, bank, store, table, requests: 0 }
    }

    /// Runs all steps of the story.
    ///
    /// # Errors
    /// If a step does not have the expected result.
    pub(super) async fn tell(&mut self) -> Result<()> {
        self.one("pay 10.00 under the key A", "A", 1_000).await?;
        self.one("the same once more", "A", 1_000).await?;
        self.one("pay 99.00 under the key A", "A", 9_900).await?;
        self.many("pay 20.00 under the key B, 32 times at once", "B", 2_000).await?;
        self.bank.break_down();
        self.one("pay 30.00 under the key C; the service breaks down after it asked the bank", "C", 3_000)
            .await?;
        self.one("the same once more", "C", 3_000).await?;
        self.resolve("an operator finds the charge at the bank and resolves the key", "C").await?;
        self.one("the same once more", "C", 3_000).await?;
        ensure!(self.bank.charges() == 3, "every payment should have been charged once");
        Ok(())
    }

    fn row(&mut self, asked: &str, charges_before: usize, answered: String) {
        let ran = match self.bank.charges() - charges_before {
            0 => "nothing".to_owned(),
            1 => "1 charge".to_owned(),
            many => format!("{many} charges"),
        };
        self.table.add_row([Cell::new(asked), Cell::new(ran), Cell::new(answered)]);
    }

    async fn one(&mut self, asked: &str, key: &str, cents: u32) -> Result<()> {
        let before = self.bank.charges();
        let answer = pay(self.gateway, key, cents).await?;
        self.requests += 1;
        self.row(asked, before, answer.describe()?);
        Ok(())
    }

    async fn many(&mut self, asked: &str, key: &'static str, cents: u32) -> Result<()> {
        let before = self.bank.charges();
        let gateway = self.gateway;
        let sent: Vec<_> = (0..AT_ONCE).map(|_| tokio::spawn(pay(gateway, key, cents))).collect();
        let mut answers = Vec::new();
        for request in sent {
            answers.push(request.await.context("a request of the demo panicked")??);
        }
        self.requests += AT_ONCE;
        let first = answers.iter().find(|answer| !answer.is_replay()).context("no request ran")?;
        let same = answers.iter().filter(|answer| answer.body == first.body).count();
        self.row(asked, before, format!("{same} times: {}", first.describe()?));
        Ok(())
    }

    /// The steps of an operator after asking the bank: `semel stale`, then `semel resolve`.
    async fn resolve(&mut self, asked: &str, key: &str) -> Result<()> {
        let before = self.bank.charges();
        let held = self.store.stale(&ListQuery::default().with_value(Some(key.to_owned()))).await?.records;
        let held = held.first().context("the held key is there")?;
        let json = Bytes::from_static(b"application/json");
        let receipt = serde_json::to_vec(&Receipt { receipt: before })?;
        let outcome = Outcome::new(201)?.with_body(receipt)?.with_headers([("content-type", json)])?;
        let change =
            self.store.resolve(&held.key, held.fence, &outcome, "seen on the bank's statement").await?;
        ensure!(change == OperatorAck::Applied, "the held key was not resolved: {change:?}");
        self.row(asked, before, "the receipt is recorded".to_owned());
        Ok(())
    }
}

/// The answer as the client sees it.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn is_replay(&self) -> bool {
        self.headers.contains_key(IDEMPOTENCY_REPLAYED)
    }

    fn describe(&self) -> Result<String> {
        let body: Value = serde_json::from_slice(&self.body).context("the answer is not JSON")?;
        let status = self.status.as_u16();
        Ok(match (body["receipt"].as_u64(), body["code"].as_str()) {
            (Some(receipt), _) if self.is_replay() => format!("{status}: receipt {receipt}, from the record"),
            (Some(receipt), _) => format!("{status}: receipt {receipt}"),
            (None, Some(code)) => format!("{status}: {code}"),
            (None, None) => bail!("the answer is neither a receipt nor a problem: {body}"),
        })
    }
}

/// Pays through the gateway, over a connection of its own.
async fn pay(gateway: SocketAddr, key: &str, cents: u32) -> Result<Answer> {
    let io = TcpStream::connect(gateway).await.context("could not connect to the gateway")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection);
    let payment = serde_json::to_vec(&Payment { to: "ann".to_owned(), cents })?;
    let request = Request::post("/payments")
        .header("host", gateway.to_string())
        .header(IDEMPOTENCY_KEY, key)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(payment)))?;
    let (parts, body) =
        sender.send_request(request).await.context("the gateway did not answer")?.into_parts();
    Ok(Answer { status: parts.status, headers: parts.headers, body: body.collect().await?.to_bytes() })
}
