//! The output of log lines.

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Writes log lines to the standard error: warnings and the binary's own messages, or the selection
/// in `SEMEL_LOG` (`debug`, or `warn,semel=debug`).
pub(crate) fn start(format: LogFormat) {
    let usual = || Targets::new().with_default(Level::WARN).with_target("semel", Level::INFO);
    let asked = std::env::var("SEMEL_LOG").ok().map(|text| text.parse::<Targets>());
    let is_wrong = matches!(asked, Some(Err(_)));
    let filter = asked.and_then(Result::ok).unwrap_or_else(usual);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // A second start, as in a test, leaves the first one in place.
    let _ = match format {
        LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if is_wrong {
        tracing::warn!("SEMEL_LOG is not understood; write it as `debug`, or as `warn,semel=debug`");
    }
}
