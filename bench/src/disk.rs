//! The number of times a second that the disk confirms a write.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::report::{Report, progress};
use crate::rounds::{Rounds, number};

/// The size of a page of Postgres.
const BYTES: usize = 8 << 10;

/// Appends pages to a file in a folder, one after the other, each synced, like the commits of one
/// caller.
pub(crate) fn measure(folder: &Path, rounds: usize, seconds: f64, report: &mut Report) -> Result<()> {
    progress("disk: append and sync");
    let path = folder.join("synced");
    let mut rates = Rounds::default();
    for _ in 0..rounds {
        rates.push(rate(&path, Duration::from_secs_f64(seconds)).context("could not write to the disk")?);
    }
    report.text(format!(
        "The disk by itself: {} appends of 8 KiB a second, each synced (`fdatasync`), {} µs for one ({} to {} a second in the rounds).\n\
         A claim + complete of one caller waits for two.",
        number(rates.median()),
        number(1e6 / rates.median()),
        number(rates.least()),
        number(rates.most()),
    ));
    Ok(())
}

fn rate(path: &Path, length: Duration) -> Result<f64> {
    let mut file = File::create(path)?;
    let (page, began) = ([b'x'; BYTES], Instant::now());
    let mut synced = 0;
    while began.elapsed() < length {
        file.write_all(&page)?;
        file.sync_data()?;
        synced += 1;
    }
    let rate = f64::from(synced) / began.elapsed().as_secs_f64();
    drop(file);
    std::fs::remove_file(path)?;
    Ok(rate)
}
