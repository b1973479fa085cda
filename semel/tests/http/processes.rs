//! Several processes over one store, some of which are killed.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use semel::http::IdempotencyLayer;
use semel::store::{PostgresOptions, Token};
use semel::{AfterCrash, Lease, MemoryStore, Outcome, Policy, PostgresStore};
use testkit::gates::{Gate, Through};
use testkit::servers::postgres_url;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::server::{BOUND, Count, Reply, Server, Stop, leased, sharing, until};

/// A server whose handler counts its runs, stops, and answers with the name of its process.
async fn stopping(layer: IdempotencyLayer) -> (Server, Count, Stop) {
    let (count, stop) = (Count::default(), Stop::default());
    let (counted, stops) = (count.clone(), stop.clone());
    let handler = post(move || async move {
        stops.here().await;
        format!("run {}", counted.up())
    });
    (Server::start(Router::new().route("/charges", handler).layer(layer)).await, count, stop)
}

/// A request in progress while the test continues; `None` if there was no answer.
fn asked(server: &Server) -> tokio::task::JoinHandle<Option<Reply>> {
    let server = Server::at(server.address);
    tokio::spawn(async move { server.post("/charges", "k", "{}").try_send().await })
}

#[tokio::test]
async fn repeats_at_another_process_wait_and_ask_the_store_together() {
    let store = MemoryStore::new();
    let policy = Policy::hold().with_wait(BOUND);
    let (server, count, stop) = stopping(sharing(store.clone()).with_policy(policy.clone())).await;
    let gate = Gate::to(&store);
    let (other, others, _) = stopping(sharing(Through(gate.clone())).with_policy(policy)).await;
    let first = asked(&server);
    stop.arrival().await;
    let repeats: Vec<_> = (0..16).map(|_| asked(&other)).collect();
    until(|| gate.calls("claim") >= 16 && gate.calls("find_many") >= 3).await;
    let (claims, polls, began) = (gate.calls("claim"), gate.calls("find_many"), Instant::now());
    until(|| gate.calls("find_many") >= polls + 5).await;
    // The waiters share one question, and none of them claims in that time.
    let most = began.elapsed().as_millis() as usize / 25 + 2;
    assert!(gate.calls("find_many") - polls <= most, "{} polls", gate.calls("find_many") - polls);
    assert_eq!(gate.calls("claim"), claims);
    stop.go();
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.text(), first.is_replay()), ("run 1", false));
    for repeat in repeats {
        let reply = repeat.await.unwrap().unwrap();
        assert_eq!((reply.text(), reply.is_replay()), ("run 1", true));
    }
    assert_eq!((count.get(), others.get()), (1, 0));
}

#[tokio::test]
async fn one_that_waits_at_another_process_takes_over_when_the_lease_is_over() {
    let store = MemoryStore::new();
    let policy = leased(Policy::retry(), 30_000).with_wait(BOUND);
    let (server, count, stop) = stopping(sharing(store.clone()).with_policy(policy.clone())).await;
    let (other, others, stop_other) = stopping(sharing(store.clone()).with_policy(policy)).await;
    let first = asked(&server);
    stop.arrival().await;
    let repeat = asked(&other);
    store.memory_clock().advance(Duration::from_secs(31));
    stop_other.arrival().await;
    stop_other.go();
    let repeat = repeat.await.unwrap().unwrap();
    assert_eq!((repeat.text(), repeat.is_replay()), ("run 1", false));
    stop.go();
    let first = first.await.unwrap().unwrap();
    assert!(first.is_replay());
    assert_eq!((count.get(), others.get()), (1, 1));
}

/// The variable that marks a process as a child, with the schema and the server that it works on.
const CHILD: &str = "SEMEL_TEST_HTTP_CHILD";
const LEASE: Duration = Duration::from_millis(600);

async fn postgres(schema: &str) -> PostgresStore {
    let options = PostgresOptions::new(&postgres_url()).unwrap().with_schema(schema);
    let store = options.connect().await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// A store, and a table for effects beside it.
pub(crate) struct Shop {
    pub(crate) store: PostgresStore,
    /// The name of the table, in quotation marks.
    pub(crate) effects: String,
}

impl Shop {
    pub(crate) async fn open(schema: &str) -> Self {
        Self { store: postgres(schema).await, effects: format!("\"{schema}\".effects") }
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&postgres_url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Leaves an effect and records the outcome in one transaction, and does something in the
    /// middle of it.
    async fn book(
        &self,
        lease: &Lease,
        who: &str,
        midway: impl Future<Output = ()>,
    ) -> Result<Outcome, StatusCode> {
        let outcome =
            Outcome::new(200).unwrap().with_body(format!("{who}, attempt {}", lease.attempt())).unwrap();
        let mut client = self.client().await;
        let mut tx = client.transaction().await.unwrap();
        tx.execute(&format!("insert into {} values ($1)", self.effects), &[&who]).await.unwrap();
        midway.await;
        let completed = self.store.complete_in(&mut tx, lease, &outcome).await.unwrap().applied();
        completed.map_err(|_| StatusCode::CONFLICT)?;
        tx.commit().await.unwrap();
        Ok(outcome)
    }

    /// The owners that have left an effect.
    pub(crate) async fn effects(&self) -> Vec<String> {
        let all = self.client().await.query(&format!("select who from {}", self.effects), &[]).await.unwrap();
        all.iter().map(|row| row.get(0)).collect()
    }
}

/// The body of a child process: a server that reports its address and its actions on its standard
/// output, and whose handler continues with each line of its standard input. It ends when that
/// input ends, so it does not outlive the test.
async fn serve_as_child(policy: Policy) {
    let schema = std::env::var(CHILD).expect("the child is told its schema");
    let stop = Stop::default();
    let stops = stop.clone();
    let (shop, after_crash) = (Arc::new(Shop::open(&schema).await), policy.after_crash());
    let layer = sharing(shop.store.clone()).with_policy(policy);
    let handler = post(move |lease: Lease| async move {
        let stops = async {
            tell(&format!("running attempt {}", lease.attempt()));
            stops.here().await;
        };
        if after_crash == AfterCrash::Transactional {
            return shop.book(&lease, "by the child", stops).await.into_response();
        }
        stops.await;
        "by the child".into_response()
    });
    let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
    tell(&format!("listening on {}", server.address));
    let mut lines = lines_of(std::io::stdin());
    while lines.recv().await.is_some() {
        stop.go();
    }
}

/// The lines of a blocking stream, as they arrive.
fn lines_of(stream: impl std::io::Read + Send + 'static) -> UnboundedReceiver<String> {
    let (tell, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let _receiver_gone =
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| tell.send(line));
    });
    lines
}

/// Sends a line to the parent, past the capture of test output.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // The line may already contain the name of a test.
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// A serving process, which is killed when this is dropped.
struct Process {
    child: Child,
    says: UnboundedReceiver<String>,
    hears: ChildStdin,
    server: Server,
}

impl Process {
    /// Starts this test again in a process of its own, which recognises that it is the child.
    async fn start(test: &str, schema: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, schema)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (hears, says) = (child.stdin.take().unwrap(), lines_of(child.stdout.take().unwrap()));
        let mut process = Self { child, hears, says, server: Server::at(([127, 0, 0, 1], 1).into()) };
        process.server = Server::at(process.line("listening on ").await.parse().unwrap());
        process
    }

    /// Waits until the handler runs, and returns the number of its attempt.
    async fn runs(&mut self) -> String {
        self.line("running attempt ").await
    }

    /// Lets the handler continue.
    fn go(&mut self) {
        self.hears.write_all(b"go\n").unwrap();
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -s {signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
    }

    /// Kills the process.
    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it was alive");
    }

    /// Waits for a line that begins with this, and returns the rest of it.
    async fn line(&mut self, begins: &str) -> String {
        let waiting = async {
            loop {
                let line = self.says.recv().await.expect("the child lives");
                if let Some(rest) = line.strip_prefix(begins) {
                    return rest.to_owned();
                }
            }
        };
        timeout(BOUND, waiting).await.expect("the child says so before long")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may be dead already.
        let _dead = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A child, and a server of this process over the same Postgres.
async fn two(test: &str, policy: &Policy) -> (Process, Server, Count) {
    let schema = format!("test {}", Token::random());
    let store = postgres(&schema).await;
    let child = Process::start(test, &schema).await;
    let count = Count::default();
    let counted = count.clone();
    let handler = post(move |lease: Lease| async move {
        counted.up();
        format!("by the other, attempt {}", lease.attempt())
    });
    let layer = sharing(store).with_policy(policy.clone());
    (child, Server::start(Router::new().route("/charges", handler).layer(layer)).await, count)
}

/// Repeats a request until the answer contains this text.
async fn ask_until(server: &Server, text: &str) -> Reply {
    let began = Instant::now();
    loop {
        let reply = server.post("/charges", "k", "{}").send().await;
        if reply.text().contains(text) {
            return reply;
        }
        reply.problem(409, "idempotency_key_pending");
        assert!(began.elapsed() < BOUND, "no {text}, but {}", reply.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_does_not_overwrite_the_one_that_took_over() {
    let policy = Policy::retry().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::a_process_that_was_stopped_does_not_overwrite_the_one_that_took_over";
    let (mut child, other, count) = two(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    child.signal("STOP");
    let stopped = Instant::now();
    let winner = ask_until(&other, "by the other").await;
    assert_eq!((winner.text(), winner.is_replay()), ("by the other, attempt 2", false));
    tokio::time::sleep((LEASE * 3).saturating_sub(stopped.elapsed())).await;
    child.go();
    child.signal("CONT");
    // The first process has finished its work after the pause, and its caller gets the recorded
    // outcome.
    let loser = first.await.unwrap().unwrap();
    assert_eq!((loser.text(), loser.is_replay()), ("by the other, attempt 2", true));
    for server in [&child.server, &other] {
        let again = server.post("/charges", "k", "{}").send().await;
        assert_eq!((again.text(), again.is_replay()), ("by the other, attempt 2", true));
    }
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn under_hold_a_process_that_was_stopped_finishes_when_it_wakes() {
    let policy = Policy::hold().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::under_hold_a_process_that_was_stopped_finishes_when_it_wakes";
    let (mut child, other, count) = two(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    child.signal("STOP");
    let stopped = Instant::now();
    ask_until(&other, "idempotency_outcome_unknown").await;
    tokio::time::sleep((LEASE * 3).saturating_sub(stopped.elapsed())).await;
    child.go();
    child.signal("CONT");
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.text(), first.is_replay()), ("by the child", false));
    let again = other.post("/charges", "k", "{}").send().await;
    assert_eq!((again.text(), again.is_replay(), count.get()), ("by the child", true, 0));
}

#[tokio::test]
async fn after_a_kill_in_the_handler_the_key_is_held_and_nothing_runs_again() {
    let policy = Policy::hold().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::after_a_kill_in_the_handler_the_key_is_held_and_nothing_runs_again";
    let (mut child, other, count) = two(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    other.post("/charges", "k", "{}").send().await.problem(409, "idempotency_key_pending");
    child.kill();
    assert!(first.await.unwrap().is_none(), "the caller has no answer");
    let held = ask_until(&other, "idempotency_outcome_unknown").await;
    assert_eq!(held.problem(409, "idempotency_outcome_unknown")["attempt"], 1);
    for _ in 0..3 {
        let again = other.post("/charges", "k", "{}").send().await;
        again.problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn after_a_kill_in_the_handler_another_process_takes_over_under_retry() {
    let policy = Policy::retry().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::after_a_kill_in_the_handler_another_process_takes_over_under_retry";
    let (mut child, other, count) = two(name, &policy.clone().with_wait(BOUND)).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    let waits = asked(&other);
    child.kill();
    assert!(first.await.unwrap().is_none(), "the caller has no answer");
    let next = waits.await.unwrap().unwrap();
    assert_eq!((next.text(), next.is_replay(), count.get()), ("by the other, attempt 2", false, 1));
}

/// A child whose handler stops in the middle of a transaction, a server of this process that books
/// as well, and the effects of both.
async fn two_that_book(test: &str, policy: &Policy) -> (Process, Server, Arc<Shop>) {
    let schema = format!("test {}", Token::random());
    let shop = Arc::new(Shop::open(&schema).await);
    shop.client().await.batch_execute(&format!("create table {} (who text)", shop.effects)).await.unwrap();
    let child = Process::start(test, &schema).await;
    let books = Arc::clone(&shop);
    let handler = post(move |lease: Lease| async move { books.book(&lease, "by the other", async {}).await });
    let layer = sharing(shop.store.clone()).with_policy(policy.clone());
    (child, Server::start(Router::new().route("/charges", handler).layer(layer)).await, shop)
}

#[tokio::test]
async fn the_transaction_of_a_killed_process_is_gone_and_its_effect_happens_once() {
    let policy = Policy::transactional().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::the_transaction_of_a_killed_process_is_gone_and_its_effect_happens_once";
    let (mut child, other, shop) = two_that_book(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    child.kill();
    assert!(first.await.unwrap().is_none(), "the caller has no answer");
    let next = ask_until(&other, "by the other").await;
    assert_eq!((next.text(), next.is_replay()), ("by the other, attempt 2", false));
    assert!(other.post("/charges", "k", "{}").send().await.is_replay());
    assert_eq!(shop.effects().await, ["by the other"]);
}

#[tokio::test]
async fn a_process_that_was_stopped_in_its_transaction_cannot_commit_after_a_takeover() {
    let policy = Policy::transactional().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::a_process_that_was_stopped_in_its_transaction_cannot_commit_after_a_takeover";
    let (mut child, other, shop) = two_that_book(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    child.signal("STOP");
    let winner = ask_until(&other, "by the other").await;
    assert_eq!((winner.text(), winner.is_replay()), ("by the other, attempt 2", false));
    child.go();
    child.signal("CONT");
    let loser = first.await.unwrap().unwrap();
    assert_eq!((loser.text(), loser.is_replay()), ("by the other, attempt 2", true));
    assert_eq!(shop.effects().await, ["by the other"]);
}

#[tokio::test]
async fn the_outcome_that_a_handler_committed_is_answered_and_replayed() {
    let policy = Policy::transactional().with_lease(LEASE);
    if std::env::var_os(CHILD).is_some() {
        return serve_as_child(policy).await;
    }
    let name = "processes::the_outcome_that_a_handler_committed_is_answered_and_replayed";
    let (mut child, other, shop) = two_that_book(name, &policy).await;
    let first = asked(&child.server);
    assert_eq!(child.runs().await, "1");
    child.go();
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.text(), first.is_replay()), ("by the child, attempt 1", false));
    let again = other.post("/charges", "k", "{}").send().await;
    assert_eq!((again.text(), again.is_replay()), ("by the child, attempt 1", true));
    assert_eq!(shop.effects().await, ["by the child"]);
}
