//! `semel resolve`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use http::{HeaderName, HeaderValue};
use semel::Outcome;

use super::shared::change::{self, ChangeArgs};
use super::shared::store::StoreArgs;
use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::stores::Opened;

#[derive(Debug, Clone, Args)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    change: ChangeArgs,

    /// The status that repeats are answered with
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,

    /// The body that repeats are answered with; empty if none is given
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,

    /// The same from a file, byte for byte; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,

    /// A header that repeats are answered with; may be given several times
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong =
        || format!("`{}` is not a header such as 'Content-Type: application/json'", text.escape_debug());
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    Ok((name.trim().parse().map_err(|_| wrong())?, value.trim().parse().map_err(|_| wrong())?))
}

pub(crate) async fn run(args: ResolveArgs) -> Result<()> {
    // The arguments are checked before the store is opened: a missing file should not cost a
    // connection.
    let outcome = args.outcome()?;
    let opened = args.store.open().await?;
    let told = resolve(&opened, &args, &outcome).await;
    opened.close().await;
    told
}

async fn resolve(Opened { store, .. }: &Opened, args: &ResolveArgs, outcome: &Outcome) -> Result<()> {
    let key = args.change.key.to_change(&**store).await?;
    let change = store.resolve(&key, args.change.fence(), outcome, &args.change.reason).await?;
    change::tell(&**store, (&args.change, &key), change, "resolved", &args.output).await
}

impl ResolveArgs {
    fn outcome(&self) -> Result<Outcome> {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), Bytes::copy_from_slice(value.as_bytes())));
        let body = match &self.body_file {
            Some(file) => read(file).with_context(|| format!("could not read {}", file.display()))?,
            None => self.body.clone().unwrap_or_default().into_bytes(),
        };
        let outcome =
            Outcome::new(self.status).and_then(|outcome| outcome.with_headers(headers)?.with_body(body));
        outcome.map_err(|error| Exit::Usage.because(error.to_string()))
    }
}

/// Reads a file, up to the size at which it is known to be too large.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let most = Outcome::MAX_BODY_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
