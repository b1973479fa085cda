//! Several processes on one file, some of which are killed.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel::store::{Ack, Claim, Token};
use semel::{Outcome, SqliteStore, Store, StoreError};
use testkit::claims::{ask, ask_at};
use testkit::stores::sqlite::Place;
use tokio::task::JoinSet;

use crate::child::{self, Process, tell};

/// The number of callers in each process. The callers of all processes use the same keys.
const CALLERS: usize = 16;

/// Not a test: a process that opens the file, and reports the result.
#[tokio::test]
async fn child_opens() {
    let Some(path) = child::path() else { return };
    match SqliteStore::open(&path).await {
        Ok(_) => tell("opened"),
        Err(error) => tell(&error.to_string()),
    }
}

/// Not a test: a process that claims one key after the other, and reports each grant and each
/// outcome as soon as it learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_load() {
    let Some(path) = child::path() else { return };
    // The process must not outlive its parent.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let store = Arc::new(store);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            for turn in 0.. {
                run(&store, &format!("key-{}-{turn}", caller / 4)).await;
            }
        });
    }
    callers.join_all().await;
}

/// Not a test: a process that writes until it fails, reports that, and goes on until it works
/// again.
#[tokio::test]
async fn child_fills() {
    let Some(path) = child::path() else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let large = Outcome::new(200).unwrap().with_body(vec![7; 20_000]).unwrap();
    let has_failed = AtomicBool::new(false);
    let told = |error: &StoreError| {
        if !has_failed.swap(true, Ordering::Relaxed) {
            tell(&format!("failed {error}"));
        }
    };
    for number in 0.. {
        let ask = ask(&store, &format!("key-{number}")).await;
        let claim = persist(|| async { store.claim(&ask).await.inspect_err(told) }).await;
        let Claim::Granted(lease) = claim else { panic!("it is new") };
        let ack = persist(|| async { store.complete(&lease, &large).await.inspect_err(told) }).await;
        if has_failed.load(Ordering::Relaxed) {
            let kept = store.find(lease.key()).await.unwrap().unwrap().outcome() == Some(&large);
            return tell(&format!("recovered {} {kept}", ack.stands()));
        }
    }
}

async fn run(store: &SqliteStore, name: &str) {
    let ask = ask_at(store.now().await.unwrap(), name);
    let Claim::Granted(lease) = persist(|| store.claim(&ask)).await else { return };
    tell(&format!("granted {name} {}", lease.token()));
    let outcome = outcome(lease.token());
    let ack = persist(|| store.complete(&lease, &outcome)).await;
    assert!(matches!(ack, Ack::Applied | Ack::Repeated), "{ack:?}");
    tell(&format!("done {name} {}", lease.token()));
}

/// Repeats a call until it is answered.
async fn persist<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

/// An outcome that no other attempt has.
fn outcome(token: Token) -> Outcome {
    Outcome::json(&token.to_string()).unwrap()
}

/// The reports of the processes.
#[derive(Default)]
struct Ledger {
    grants: HashMap<String, HashSet<Token>>,
    outcomes: HashMap<String, Token>,
}

impl Ledger {
    fn note(&mut self, line: &str) {
        let parts: Vec<&str> = line.split(' ').collect();
        let [what, key, token] = parts[..] else { panic!("{line}") };
        // The last line of a killed process may be cut off.
        let Ok(token) = token.parse() else { return };
        match what {
            "granted" => drop(self.grants.entry(key.to_owned()).or_default().insert(token)),
            "done" => assert_eq!(self.outcomes.insert(key.to_owned(), token), None, "{key} was done twice"),
            _ => panic!("{line}"),
        }
    }

    async fn listen(&mut self, process: &mut Process, lines: usize) {
        for _ in 0..lines {
            let line = process.line().await;
            self.note(&line);
        }
    }

    /// Compares the reports with the records.
    async fn judge(&self, place: &Place) {
        let twice: Vec<_> = self.grants.iter().filter(|(_, tokens)| tokens.len() > 1).collect();
        assert!(twice.is_empty(), "granted to two: {twice:?}");
        let store = place.store().await;
        for (key, tokens) in &self.grants {
            let asked = ask(&store, key).await.with_token(Token::random());
            let found = store.find(&asked.key).await.unwrap().expect("a grant was lost");
            assert!(tokens.contains(&found.token), "{key} was granted to another");
            let claim = store.claim(&asked).await.unwrap();
            match self.outcomes.get(key) {
                Some(token) => {
                    let is_replayed = matches!(&claim, Claim::Done(done) if done.outcome == outcome(*token));
                    assert!(is_replayed, "{key}: {claim:?}");
                }
                // The process may have been killed before it learned of it.
                None => assert!(matches!(claim, Claim::Running { .. } | Claim::Done(_)), "{key}: {claim:?}"),
            }
        }
        let integrity: String =
            place.client().query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(integrity, "ok");
    }
}

#[tokio::test]
async fn of_what_was_answered_nothing_is_lost_when_processes_are_killed() {
    const KILLS: usize = 6;
    let place = Place::new();
    let mut ledger = Ledger::default();
    let mut processes = vec![child::start("load", &place), child::start("load", &place)];
    for kill in 0..KILLS {
        for process in &mut processes {
            ledger.listen(process, 50 + 7 * kill).await;
        }
        for line in processes.remove(0).kill().await {
            ledger.note(&line);
        }
        processes.push(child::start("load", &place));
    }
    // With the last process, no connection to the file is left: the next one recovers it.
    for process in processes {
        for line in process.kill().await {
            ledger.note(&line);
        }
    }
    assert!(place.beside("-wal").exists(), "they were killed");
    assert!(ledger.outcomes.len() > 100, "{} outcomes are no load", ledger.outcomes.len());
    ledger.judge(&place).await;

    let mut after = child::start("load", &place);
    ledger.listen(&mut after, 20).await;
    for line in after.kill().await {
        ledger.note(&line);
    }
    ledger.judge(&place).await;
}

/// The effect of a quota: the write fails, and it is unknown how much of it was done.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_log_that_cannot_be_written_is_waited_for() {
    let place = Place::new();
    let mut process = child::start_limited("fills", &place, 600);
    let failed = process.line().await;
    assert!(
        failed.starts_with("failed ") && failed.contains(&place.path().display().to_string()),
        "{failed}"
    );
    process.unlimit();
    assert_eq!(process.line().await, "recovered true true");
}
