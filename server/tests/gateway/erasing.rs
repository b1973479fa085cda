//! Erasing an answer by the command line, beside a running gateway.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::process::{BOUND, Setup};
use crate::upstream::{Upstream, answer};

/// The number of places in the file of the store, and in those beside it, that contain the
/// beginning of any secret.
fn traces(store: &Path) -> usize {
    let folder = std::fs::read_dir(store.parent().expect("a folder")).expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let files = paths.filter(|path| path.display().to_string().starts_with(&store.display().to_string()));
    // A file may go away meanwhile.
    let bytes = files.filter_map(|path| std::fs::read(path).ok());
    bytes.map(|bytes| bytes.windows(7).filter(|found| found == b"secret-").count()).sum()
}

/// An upstream that answers with a secret of some size to every other key.
async fn secretive() -> Upstream {
    Upstream::start(|seen| async move {
        let key = seen.header("idempotency-key").expect("a key").to_owned();
        let number: usize = key.trim_start_matches("k-").parse().expect("a number");
        let name = if number % 2 == 1 { "secret" } else { "public" };
        let bytes = [40, 300, 700, 3_000, 9_000][number % 5];
        let body = format!("{name}-{number:04}-").into_bytes().into_iter().cycle().take(bytes);
        answer("200 OK", "", body.collect::<Vec<u8>>())
    })
    .await
}

/// Regression: the log was not emptied if the gateway read at that moment, and nobody was told; and
/// copies that SQLite had left in pages of other records stayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_answer_is_in_none_of_the_files_beside_a_running_gateway() {
    let upstream = secretive().await;
    let setup = Setup::before(upstream.address);
    let store = setup.path("semel.db");
    let gateway = Arc::new(setup.start().await);
    // Several at a time, so that records are neighbours while they grow.
    for batch in 0..10 {
        let posting: Vec<_> = (batch * 16..(batch + 1) * 16)
            .map(|number| gateway.posting(&format!("k-{number}"), "{}"))
            .collect();
        for posted in posting {
            assert_eq!(posted.await.expect("no panic").expect("an answer").status, 200);
        }
    }
    assert!(traces(&store) > 80, "the search finds what is there");

    // Meanwhile the gateway is read from and written to.
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (gateway, stop) = (Arc::clone(&gateway), Arc::clone(&stop));
        async move {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                assert!(gateway.post("k-2", "{}").await.is_replay());
                gateway.post(&format!("k-{}", 10_000 + 2 * count), "{}").await;
                count += 1;
            }
            count
        }
    });
    let place = format!("sqlite:{}", store.display());
    let cli = async |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_semel"));
        command.args(words).args(["--store", &place]);
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
        let output = output.expect("it runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let listed = cli(&["list", "--all", "--output", "json"]).await;
    let mut forgotten = 0;
    for line in listed.lines() {
        let record: Value = serde_json::from_str(line).expect("an object");
        let key = record["key"].as_str().expect("a key");
        let number: usize = key.trim_start_matches("k-").parse().expect("a number");
        if number % 2 == 1 {
            let fence = record["fence"].to_string();
            let fence = fence.trim_matches('"');
            cli(&["forget", key, "--fence", fence, "--reason", "asked to"]).await;
            forgotten += 1;
        }
    }
    assert_eq!(forgotten, 80);
    // A record is removed once no copy of its claim can arrive.
    let began = std::time::Instant::now();
    let mut left = usize::MAX;
    while left > 0 {
        cli(&["prune", "--erase"]).await;
        left = cli(&["list", "--all", "--output", "json"])
            .await
            .lines()
            .filter(|line| line.contains("released"))
            .count();
        assert!(began.elapsed() < BOUND, "{left} are left");
    }
    cli(&["prune", "--erase"]).await;
    assert_eq!(traces(&store), 0);
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.expect("no panic") > 0, "there was load");
    assert!(gateway.post("k-4", "{}").await.is_replay());
    assert!(traces(&store) == 0, "it stays so");
}
