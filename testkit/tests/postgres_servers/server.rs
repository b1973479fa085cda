//! One server: its crash, its end, and the signals it gets.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::servers::PostgresServers;
use tokio::time::{sleep, timeout};

use crate::{LONG, connect, count};

#[tokio::test]
async fn crash_leaves_no_process_and_loses_nothing() {
    let mut servers = PostgresServers::new().unwrap();
    servers.start("a", &[]).unwrap();
    assert!(servers.start("a", &[]).is_err(), "it runs already");
    let client = connect(&servers.url("a").unwrap()).await;
    client
        .batch_execute("create table numbers (number bigint); insert into numbers values (1)")
        .await
        .unwrap();
    let rows = client.query("select pid from pg_stat_activity", &[]).await.unwrap();
    let processes: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert!(processes.len() > 3, "{processes:?}");
    servers.crash("a").unwrap();
    for process in processes {
        assert!(!is_alive(process), "{process} is still there");
    }
    assert!(servers.crash("a").is_err(), "it is gone");
    servers.start("a", &["max_connections=17"]).unwrap();
    let client = connect(&servers.url("a").unwrap()).await;
    assert_eq!(count(&client).await, 1);
    let max: String = client.query_one("show max_connections", &[]).await.unwrap().get(0);
    assert_eq!(max, "17");
    // Only its start was without the standby.
    let synced = async {
        while client.query_one("show fsync", &[]).await.unwrap().get::<_, &str>(0) != "on" {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, synced).await.expect("never syncs");

    // A server that does not start reports the reason, and the remaining servers continue.
    let error = servers.start("b", &["max_connections=many"]).unwrap_err();
    assert!(format!("{error:#}").contains("invalid value for parameter"), "{error:#}");
    assert_eq!(count(&client).await, 1);
    // Another program takes its port in the meantime.
    let taken = TcpListener::bind(("127.0.0.1", servers.port("b").unwrap())).unwrap();
    servers.start("b", &[]).unwrap();
    assert_ne!(servers.port("b").unwrap(), taken.local_addr().unwrap().port());
    connect(&servers.url("b").unwrap()).await;
    servers.stop("b").unwrap();
    servers.start("b", &[]).unwrap();
}

#[tokio::test]
async fn stopped_server_hangs_until_it_may_go_on() {
    let mut servers = PostgresServers::new().unwrap();
    servers.start("a", &[]).unwrap();
    let client = connect(&servers.url("a").unwrap()).await;
    servers.signal_all("STOP", "a").unwrap();
    let answer = client.simple_query("select 1");
    tokio::pin!(answer);
    assert!(timeout(Duration::from_millis(200), &mut answer).await.is_err());
    servers.signal_all("CONT", "a").unwrap();
    timeout(LONG, answer).await.expect("still hangs").unwrap();
}

/// Not a test: the process that the next test kills.
#[test]
fn a_process_with_servers_that_is_killed() {
    if std::env::var_os("SEMEL_SERVERS_TO_LOSE").is_none() {
        return;
    }
    let mut servers = PostgresServers::new().unwrap();
    servers.start("a", &[]).unwrap();
    let process = fs::read_to_string(format!("{}/a.pid", servers.folder())).unwrap();
    println!("\nserving {} {}", process.trim(), servers.folder());
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn servers_of_a_killed_process_end() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::a_process_with_servers_that_is_killed", "--nocapture"])
        .env("SEMEL_SERVERS_TO_LOSE", "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.unwrap().strip_prefix("serving ")?.to_owned())).unwrap();
    let (process, folder) = line.split_once(' ').unwrap();
    assert!(is_alive(process) && Path::new(folder).exists());
    child.kill().unwrap();
    child.wait().unwrap();
    // A server whose files are gone ends by itself, after a minute.
    await_end(Duration::from_secs(30), || is_alive(process));
    await_end(LONG, || Path::new(folder).exists());
}

fn await_end(within: Duration, goes_on: impl Fn() -> bool) {
    let began = Instant::now();
    while goes_on() {
        assert!(began.elapsed() < within, "goes on");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns `true` if a process runs. A process that is dead but not yet waited for does not.
fn is_alive(process: impl Display) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}
