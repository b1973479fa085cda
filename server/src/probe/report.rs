//! The results of a probe as a table, as JSON and as a page.

use anyhow::Result;
use http::Uri;
use serde_json::json;

use super::checks::{Checked, Verdict};
use super::dialect::Dialect;
use crate::output::{Columns, json_line};

/// A sentence about all results.
fn summary(results: &[Checked]) -> String {
    let count = |verdict| results.iter().filter(|checked| checked.verdict == verdict).count();
    let [right, wrong, weak, unknown] =
        [Verdict::Right, Verdict::Wrong, Verdict::Weak, Verdict::Unknown].map(count);
    format!("{right} right, {wrong} wrong, {weak} weak, {unknown} unknown")
}

pub(super) fn table(url: &Uri, dialect: Dialect, results: &[Checked]) -> String {
    let rows = results
        .iter()
        .map(|checked| [checked.name.to_owned(), checked.verdict.word().to_owned(), checked.seen.clone()]);
    let rows = Columns::new(["check", "verdict", "seen"]).page(rows);
    format!("{rows}\n{url} by the rules of {}: {}\n", dialect.rules().name, summary(results))
}

pub(super) fn json(url: &Uri, dialect: Dialect, results: &[Checked]) -> Result<String> {
    let mut lines = String::new();
    for checked in results {
        lines.push_str(&json_line(&json!({
            "url": url.to_string(),
            "dialect": dialect.rules().name,
            "check": checked.name,
            "verdict": checked.verdict.word(),
            "seen": checked.seen,
        }))?);
    }
    Ok(lines)
}

/// A page that needs nothing else.
pub(super) fn page(url: &Uri, dialect: Dialect, results: &[Checked]) -> String {
    let wrong = results.iter().filter(|checked| checked.is_wrong()).count();
    let (badge, color) = match wrong {
        0 => ("safe to retry".to_owned(), "#1a7f37"),
        1 => ("1 mistake".to_owned(), "#cf222e"),
        _ => (format!("{wrong} mistakes"), "#cf222e"),
    };
    let rows: String = results
        .iter()
        .map(|checked| {
            let word = checked.verdict.word();
            format!(
                "<tr class=\"{word}\"><td>{}</td><td>{word}</td><td>{}</td></tr>\n",
                checked.name,
                text(&checked.seen)
            )
        })
        .collect();
    let values = [
        ("@badge@", badge),
        ("@color@", color.to_owned()),
        ("@url@", text(&url.to_string())),
        ("@dialect@", dialect.rules().name.to_owned()),
        ("@summary@", summary(results)),
        // The rows come last, as they hold text of the server.
        ("@rows@", rows),
    ];
    let mut page = include_str!("page.html").to_owned();
    for (place, value) in values {
        page = page.replace(place, &value);
    }
    page
}

/// Text that a browser shows as it is.
fn text(raw: &str) -> String {
    raw.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Vec<Checked> {
        let checked = |name, verdict, seen: &str| Checked { name, verdict, seen: seen.to_owned() };
        vec![
            checked("repeat", Verdict::Right, "a repeat is answered 200"),
            checked("race", Verdict::Wrong, "it ran <2> times"),
        ]
    }

    #[test]
    fn a_page_shows_text_of_the_server_as_text() {
        let page = page(&"http://a/".parse().unwrap(), Dialect::Ietf, &results());
        assert!(page.contains("it ran &lt;2&gt; times"), "{page}");
        assert!(page.contains("1 mistake"), "{page}");
    }

    #[test]
    fn the_summary_counts() {
        let table = table(&"http://a/".parse().unwrap(), Dialect::Ietf, &results());
        assert!(
            table.ends_with("http://a/ by the rules of ietf: 1 right, 1 wrong, 0 weak, 0 unknown\n"),
            "{table}"
        );
    }
}
