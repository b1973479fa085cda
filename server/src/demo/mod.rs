//! The demo: a gateway, a payment service and SQLite in one process.
//!
//! - `folder`: the temporary folder of the demo.
//! - `service`: the payment service and its bank.
//! - `story`: the requests, and the table of their results.

mod folder;
mod service;
mod story;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Admin, AnonymousCallers, Config, RouteSettings, Settings, Span, StoreSettings};
use crate::gateway::Gateway;
use crate::output::print;
use folder::Folder;
use service::Bank;
use story::Story;

/// Runs the story, and stays up unless told to exit.
///
/// # Errors
/// If a step does not have the expected result.
pub(crate) async fn run(exit: bool) -> Result<()> {
    // Signals are handled from here on, so that an interrupted demo leaves nothing behind.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let folder = Folder::new()?;
    let bank = Arc::new(Bank::default());
    let file = folder.path().join("semel.db").display().to_string();
    let gateway = Gateway::start(config(service::serve(Arc::clone(&bank)).await?, &file)?).await?;
    let told = tokio::select! {
        told = tell(&gateway, bank, exit, &file) => told,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    gateway.stop().await;
    told
}

fn config(service: SocketAddr, file: &str) -> Result<Config> {
    Config::new(Settings {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        admin: Some(Admin::Off),
        upstream: Some(format!("http://{service}")),
        place: StoreSettings { store: Some(format!("sqlite:{file}")), cache: None },
        route: RouteSettings {
            wait: Some(Span(Duration::from_secs(5))),
            // Users who try the demo have no credentials.
            anonymous: Some(AnonymousCallers::Share),
            ..RouteSettings::default()
        },
        drain: Some(Span(Duration::from_secs(1))),
        ..Settings::default()
    })
    .context("the configuration of the demo")
}

async fn tell(gateway: &Gateway, bank: Arc<Bank>, exit: bool, file: &str) -> Result<()> {
    let mut story = Story::new(gateway.address(), Arc::clone(&bank), gateway.store());
    story.tell().await?;
    print(&format!(
        "A payment service that knows nothing of keys, and a gateway before it, on SQLite.\n\
         The policy is `hold`: nothing runs twice.\n\n{}\n\n{} requests, 3 payments, {} charges.\n",
        story.table,
        story.requests,
        bank.charges()
    ))?;
    if exit {
        return Ok(());
    }
    let pay = |cents: u32| {
        format!(
            "curl -i http://{}/payments -H 'Idempotency-Key: mine' -H 'Content-Type: application/json' \
             -d '{{\"to\":\"ann\",\"cents\":{cents}}}'",
            gateway.address()
        )
    };
    print(&format!(
        "\nIt stays up for you to try. Pay, and send the same again; then try another amount under the same key:\n\n  \
         {}\n  {}\n\nWhat it remembers: semel list --store sqlite:{file}\nCtrl-C ends it, and leaves nothing behind.\n",
        pay(1_000),
        pay(9_900),
    ))?;
    std::future::pending().await
}
