//! The gateway as a process, configured by flags, used over sockets, and ended by signals.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::wire::{Reply, Wire, request};

/// The time limit of any step of a test, also on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// The memory that a gateway may need beside its budget.
const BESIDE: u64 = 32 << 20;

/// Waits until this holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < BOUND, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The settings of a gateway before it starts. It can be started several times, on the same store.
pub(crate) struct Setup {
    /// The folder for files of this test.
    folder: Arc<TempDir>,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Setup {
    /// Settings with free ports and a SQLite file of their own. Callers share their keys, unless
    /// they have credentials.
    pub(crate) fn new() -> Self {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let setup = Self { folder, flags: Vec::new(), variables: Vec::new() };
        let store = format!("sqlite:{}", setup.path("semel.db").display());
        let setup = setup.with("--listen", "127.0.0.1:0").with("--admin", "127.0.0.1:0");
        setup.with("--store", &store).with("--anonymous", "share")
    }

    /// Settings for this upstream.
    pub(crate) fn before(upstream: SocketAddr) -> Self {
        Self::new().with("--upstream", &format!("http://{upstream}"))
    }

    /// Sets a flag, or replaces its value.
    pub(crate) fn with(self, flag: &str, value: &str) -> Self {
        let mut setup = self.without(flag);
        setup.flags.extend([flag.to_owned(), value.to_owned()]);
        setup
    }

    pub(crate) fn without(mut self, flag: &str) -> Self {
        if let Some(at) = self.flags.iter().position(|set| set == flag) {
            self.flags.drain(at..at + 2);
        }
        self
    }

    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the content of the file of `--config`.
    pub(crate) fn with_file(self, text: &str) -> Self {
        let path = self.write("semel.toml", text);
        self.with("--config", &path.display().to_string())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of this test.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command.args(words).args(&self.flags).current_dir(self.folder.path());
        // The developer's own settings must not affect the tests.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SEMEL_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Starts the gateway, and waits until it listens.
    pub(crate) async fn start(&self) -> Gateway {
        let mut gateway = Gateway::spawn(self.command(&["gateway"]), Arc::clone(&self.folder));
        gateway.address = gateway.told("listening on ").await;
        if !self.flags.windows(2).any(|pair| pair == ["--admin", "off"]) {
            gateway.admin = gateway.told("admin on ").await;
        }
        gateway
    }

    /// Starts the gateway in a shell that has limited itself by this command before.
    pub(crate) async fn start_after(&self, limit: &str) -> Gateway {
        let inner = self.command(&["gateway"]);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")])
            .arg(inner.get_program())
            .args(inner.get_args());
        shell.current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let mut gateway = Gateway::spawn(shell, Arc::clone(&self.folder));
        gateway.address = gateway.told("listening on ").await;
        gateway
    }

    /// Runs a command that is expected to end by itself, and returns its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        Ended::from(&self.command(words).output().expect("it can be started"))
    }
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) complained: String,
}

impl From<&Output> for Ended {
    fn from(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), said: text(&output.stdout), complained: text(&output.stderr) }
    }
}

/// A running gateway, which is killed when this is dropped.
pub(crate) struct Gateway {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reading: Option<JoinHandle<()>>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The folder of its files.
    _folder: Arc<TempDir>,
}

impl Gateway {
    fn spawn(mut command: Command, folder: Arc<TempDir>) -> Self {
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, stderr) = (Arc::clone(&log), child.stderr.take().expect("it is piped"));
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no thread panics with it").push(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        Self { child, log, reading: Some(reading), address: nowhere, admin: nowhere, _folder: folder }
    }

    /// The address that a line of the log names.
    async fn told(&mut self, text: &str) -> SocketAddr {
        let line = self.line(text).await;
        line.split('"').next().and_then(|address| address.parse().ok()).expect("an address")
    }

    /// The whole log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no thread panics with it").join("\n")
    }

    /// Waits for a line of the log that contains this, and returns the rest of that line.
    pub(crate) async fn line(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let found = |log: &str| log.lines().find_map(|line| Some(line.split_once(text)?.1.to_owned()));
            if let Some(rest) = found(&self.log()) {
                return rest;
            }
            assert!(!self.has_ended() || found(&self.log()).is_some(), "it ended: {}", self.log());
            assert!(began.elapsed() < BOUND, "no {text:?} in {}", self.log());
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let kill = format!("kill -s {signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
    }

    /// Returns `true` if a signal has stopped all threads.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(Path::new("/proc").join(self.child.id().to_string()).join("stat"));
        stat.is_ok_and(|stat| {
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Kills the gateway.
    pub(crate) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it was alive");
    }

    /// Waits until it has ended, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        while !self.has_ended() {
            assert!(began.elapsed() < BOUND, "it does not end: {}", self.log());
            sleep(Duration::from_millis(5)).await;
        }
        self.child.wait().expect("a child").code()
    }

    /// Returns `true` if it has ended, and its whole output is read.
    pub(crate) fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait().expect("a child").is_some();
        if let Some(reading) = self.reading.take_if(|_| ended) {
            reading.join().expect("it reads to the end");
        }
        ended
    }

    /// The memory in use.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pages =
            std::fs::read_to_string(Path::new("/proc").join(self.child.id().to_string()).join("statm"));
        let pages = pages.expect("it lives");
        pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4_096
    }

    /// The limit of its open files.
    pub(crate) fn open_files(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("it lives");
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
        files.split_whitespace().next().and_then(|soft| soft.parse().ok()).unwrap_or(u64::MAX)
    }

    /// The largest memory in use so far.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kibibytes.expect("a number") << 10
    }

    /// Checks that the memory in use has never exceeded that at rest by more than this budget and
    /// the memory that the gateway may need beside it.
    #[track_caller]
    pub(crate) fn stays_within(&self, before: u64, budget: u64) {
        let peak = self.peak_bytes();
        println!("{} KiB at rest, {} KiB more at most", before >> 10, (peak - before) >> 10);
        assert!(peak < before + budget + BESIDE, "{peak} bytes, and {before} at rest");
    }

    pub(crate) async fn wire(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// Sends a request over a connection of its own.
    pub(crate) async fn ask(&self, line: &str, fields: &str, body: impl AsRef<[u8]>) -> Reply {
        self.try_ask(line, fields, body).await.expect("an answer")
    }

    /// Sends a request that may get no answer.
    pub(crate) async fn try_ask(&self, line: &str, fields: &str, body: impl AsRef<[u8]>) -> Option<Reply> {
        let mut wire = Wire::try_to(self.address).await?;
        wire.try_send(request(line, fields, body.as_ref())).await?;
        wire.try_reply().await
    }

    /// A POST with this key.
    pub(crate) async fn post(&self, key: &str, body: &str) -> Reply {
        self.ask("POST /charges", &format!("Idempotency-Key: {key}\r\n"), body).await
    }

    /// Sends a POST with this key in the background; `None` if there is no answer.
    pub(crate) fn posting(&self, key: &str, body: &str) -> tokio::task::JoinHandle<Option<Reply>> {
        let (address, sent) =
            (self.address, request("POST /charges", &format!("Idempotency-Key: {key}\r\n"), body.as_bytes()));
        tokio::spawn(async move {
            let mut wire = Wire::try_to(address).await?;
            wire.try_send(sent).await?;
            wire.try_reply().await
        })
    }

    /// Repeats a POST until the answer differs from "the key is pending".
    pub(crate) async fn post_until_settled(&self, key: &str, body: &str) -> Reply {
        let began = Instant::now();
        loop {
            let reply = self.post(key, body).await;
            if !reply.text().contains("idempotency_key_pending") {
                return reply;
            }
            assert!(began.elapsed() < BOUND, "{key} stays pending");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The sum of the metrics whose lines contain all of these.
    pub(crate) async fn metric(&self, parts: &[&str]) -> f64 {
        let shown = self.admin("/metrics").await.text();
        let lines = shown.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Sends a request to the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        self.admin_as("localhost", path, "").await
    }

    /// Sends a request to the admin listener with another host name, and with more fields.
    pub(crate) async fn admin_as(&self, host: &str, path: &str, fields: &str) -> Reply {
        let mut wire = Wire::to(self.admin).await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
        wire.reply().await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the gateway said:\n{}", self.log());
        }
        // The process may have ended already.
        let _dead = self.child.kill().and_then(|()| self.child.wait());
    }
}
