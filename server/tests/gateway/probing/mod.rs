//! `semel probe` against servers with one mistake each, and against the gateway.

mod server;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use futures_util::future::join_all;
use serde_json::Value;

use crate::process::Setup;
use server::{Mistake, Server};

async fn probe(url: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.args(["probe", url, "--header", "Authorization: Bearer ann"]).args(more);
    // The server is on this thread.
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The checks that a probe of this URL, with the counter of this server, finds wrong.
async fn wrong(url: &str, server: &Server) -> BTreeSet<String> {
    let effects = server.url("/effects");
    let more = ["--effects", &effects, "--other-caller", "Authorization: Bearer bob", "--output", "json"];
    let output = probe(url, &more).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let wrong: BTreeSet<String> = lines
        .filter(|line| line["verdict"] == "wrong")
        .map(|line| line["check"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(output.status.code(), Some(i32::from(!wrong.is_empty())), "{text}");
    wrong
}

#[tokio::test]
async fn a_server_without_a_mistake_is_right() {
    let server = Server::start(None).await;
    assert_eq!(wrong(&server.url("/payments"), &server).await, BTreeSet::new());
}

#[tokio::test]
async fn the_gateway_is_right_before_a_service_without_idempotency() {
    let server = Server::start(Some(Mistake::Ignores)).await;
    let gateway = Setup::before(server.address).start().await;
    let url = format!("http://{}/payments", gateway.address);
    assert_eq!(wrong(&url, &server).await, BTreeSet::new());
}

#[tokio::test]
async fn each_mistake_is_found_by_its_check() {
    join_all(Mistake::ALL.map(async |mistake| {
        let server = Server::start(Some(mistake)).await;
        let wrong = wrong(&server.url("/payments"), &server).await;
        let expected = mistake.found_by();
        assert!(wrong.contains(expected), "{mistake:?} is found by {expected}, not by {wrong:?}");
        if mistake.is_alone() {
            assert_eq!(wrong.len(), 1, "{mistake:?}: {wrong:?}");
        }
    }))
    .await;
}

#[tokio::test]
async fn without_a_counter_and_with_equal_answers_a_second_run_is_unknown() {
    let server = Server::start(Some(Mistake::AnswersAlike)).await;
    let output = probe(&server.url("/payments"), &["--output", "json"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let repeat = text.lines().find(|line| line.contains(r#""repeat""#)).unwrap();
    assert!(repeat.contains("--effects") && repeat.contains("unknown"), "{repeat}");
}

#[tokio::test]
async fn a_server_that_refuses_ordinary_requests_is_not_judged() {
    let server = Server::start(None).await;
    let output = probe(&server.url("/nowhere"), &[]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("answered 404") && error.contains("--header"), "{error}");
}

#[tokio::test]
async fn a_page_shows_the_results() {
    let server = Server::start(Some(Mistake::ReplaysCookies)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.html");
    let output = probe(&server.url("/payments"), &["--page", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    let (page, table) = (std::fs::read_to_string(file).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(page.contains("1 mistake") && page.contains("sets a cookie") && !page.contains('@'), "{page}");
    assert!(table.contains("cookies") && table.contains("1 wrong"), "{table}");
}
