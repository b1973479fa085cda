//! `semel probe`: tells what any server does with keys, from outside.
//!
//! It sends pairs of requests, races, other bodies and requests whose answer is cut off, and judges
//! by the answers alone. Each request has a connection of its own, so that no pool repeats it.
//!
//! - `target`: sends a request, and reads its answer.
//! - `dialect`: the answers that a dialect asks for.
//! - `effects`: the number of times that the server has run a request.
//! - `checks`: the requests of each check, and the verdict on the answers.
//! - `report`: the results as a table, as JSON and as a page.

mod target;
mod dialect;
mod effects;
mod checks;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::config::Span;
use crate::exit::Exit;
use crate::output::{OutputArgs, print};
use checks::Probe;
use dialect::Dialect;
use target::Target;

#[derive(Debug, Clone, Args)]
pub(crate) struct ProbeArgs {
    /// Where requests are sent, such as http://127.0.0.1:3000/payments
    #[arg(value_name = "URL", value_parser = target::uri)]
    url: Uri,

    /// The method of the requests
    #[arg(long, default_value = "POST")]
    method: Method,

    /// A header of all requests, such as 'Authorization: Bearer TOKEN'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    /// The body of a request that succeeds
    #[arg(long, value_name = "TEXT", default_value = r#"{"amount":100}"#)]
    body: String,

    /// Another body that would succeed, too, with a key of its own
    #[arg(long, value_name = "TEXT", default_value = r#"{"amount":200}"#)]
    other_body: String,

    /// The credentials of another caller, such as 'Authorization: Bearer OTHER'
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    other_caller: Option<(HeaderName, HeaderValue)>,

    /// A URL that answers with the number of effects so far, for answers that do not tell two runs
    /// apart
    #[arg(long, value_name = "URL", value_parser = target::uri)]
    effects: Option<Uri>,

    /// The rules to judge by
    #[arg(long, value_enum, default_value_t = Dialect::Ietf)]
    dialect: Dialect,

    /// How many requests are sent at once in a race
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    at_once: u16,

    /// How long an answer may take
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: Span,

    /// Trust the certificates in this PEM file as well as those of the system
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Write the results as a page with a badge to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("it has no colon between name and value")?;
    let name = name.trim().parse().map_err(|_| "it does not begin with the name of a header")?;
    let value = value.trim().parse().map_err(|_| "the value is not that of a header")?;
    Ok((name, value))
}

pub(crate) async fn run(args: ProbeArgs) -> Result<ExitCode> {
    let Span(patience) = args.timeout;
    let target = Target::new(&args, patience)?;
    let results = Probe::new(target, &args).all().await?;
    print(&match args.output.is_json() {
        true => report::json(&args.url, args.dialect, &results)?,
        false => report::table(&args.url, args.dialect, &results),
    })?;
    if let Some(file) = &args.page {
        std::fs::write(file, report::page(&args.url, args.dialect, &results))
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    Ok(if results.iter().any(checks::Checked::is_wrong) { Exit::Failed.code() } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value() {
        let (name, value) = header("Authorization: Bearer a:b").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a:b"));
        for bad in ["", "Authorization", "a b: c", "a: b\nc"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
