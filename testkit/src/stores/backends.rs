//! The server processes behind a store.

use std::process::Command;

use semel::store::Token;
use tokio_postgres::Client;

use crate::stores::postgres::Place;
use crate::until::until;

/// The server processes of all connections that have one name.
pub struct Backends {
    client: Client,
    name: String,
}

impl Backends {
    /// A place whose stores' connections have a name of their own, and those connections.
    pub async fn on(url: &str) -> (Place, Self) {
        let name = format!("semel-{}", Token::random());
        let client = Place::on(url.to_owned()).client().await;
        let sign = if url.contains('?') { '&' } else { '?' };
        (Place::on(format!("{url}{sign}application_name={name}")), Self { client, name })
    }

    /// The processes for which this holds, such as `wait_event = 'SyncRep'`.
    pub async fn that(&self, condition: &str) -> Vec<i32> {
        let question =
            format!("select pid from pg_stat_activity where application_name = $1 and ({condition})");
        self.client.query(&question, &[&self.name]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// The processes that have worked on records, and not only read the clock.
    pub async fn of_committers(&self) -> Vec<i32> {
        self.that("query like '%records%'").await
    }

    /// Terminates all processes, and returns their number.
    pub async fn terminate(&self) -> u64 {
        let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1";
        self.client.execute(terminate, &[&self.name]).await.unwrap()
    }

    /// Cancels the statements of all processes that wait for a standby.
    pub async fn cancel_waits_for_standby(&self) -> u64 {
        let cancel = "select pg_cancel_backend(pid) from pg_stat_activity
            where application_name = $1 and wait_event = 'SyncRep'";
        self.client.execute(cancel, &[&self.name]).await.unwrap()
    }

    /// Waits until a process is gone.
    pub async fn await_end(&self, pid: i32) {
        until("the server process ends", async || {
            let question = "select from pg_stat_activity where pid = $1";
            self.client.query(question, &[&pid]).await.unwrap().is_empty()
        })
        .await;
    }
}

/// Sends a signal to a process, if it exists, and returns `true` then.
pub fn try_signal(signal: &str, pid: i32) -> bool {
    Command::new("sh").args(["-c", &format!("kill -s {signal} {pid}")]).status().unwrap().success()
}

/// Sends a signal to a process.
pub fn signal(signal: &str, pid: i32) {
    let kill = format!("kill -s {signal} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
}
