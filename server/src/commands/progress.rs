//! How far a long command is, for whoever looks at a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line that moves while something of unknown length goes on. On a terminal only.
pub(super) fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A bar of so many seconds. On a terminal only.
pub(super) fn bar(seconds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seconds);
    let style = ProgressStyle::with_template("{msg:>8} [{bar:40}] {pos}s of {len}s");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}
