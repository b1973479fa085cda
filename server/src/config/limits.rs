//! The limits of attempts, keys and the store.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use super::units::{Size, Span};

/// How much runs and is kept at a time.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LimitSettings {
    /// The most attempts at a time, those of clients that have gone included [default: 1000]
    ///
    /// Beyond, replays are still answered, and what would run gets 503.
    #[arg(long, env = "SEMEL_MAX_ATTEMPTS", value_name = "NUMBER")]
    pub(crate) max_attempts: Option<usize>,

    /// How much the store may keep before new keys get 503, such as 10GiB or 5000000records
    /// [default: no limit]
    ///
    /// Replays go on, and no record is removed before its time. It is measured every few seconds:
    /// bytes for SQLite, records for memory, either for Postgres and Redis.
    #[arg(long, env = "SEMEL_MAX_STORE", value_name = "SIZE")]
    pub(crate) max_store: Option<StoreLimit>,

    /// The most unsettled keys of one caller, counted in this process; beyond: 429 [default: no
    /// limit]
    #[arg(long, env = "SEMEL_MAX_UNSETTLED_PER_CALLER", value_name = "NUMBER")]
    pub(crate) max_unsettled_per_caller: Option<u32>,

    /// The most new keys of one caller within a time, such as 1000/1h, counted in this process;
    /// beyond: 429 [default: no limit]
    #[arg(long, env = "SEMEL_MAX_NEW_PER_CALLER", value_name = "RATE")]
    pub(crate) max_new_per_caller: Option<Rate>,
}

/// The same settings, checked and with defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_attempts: usize,
    pub(crate) max_store: Option<StoreLimit>,
    pub(crate) max_unsettled_per_caller: Option<u32>,
    pub(crate) max_new_per_caller: Option<Rate>,
}

impl Limits {
    /// # Errors
    /// If a limit is out of range, or cannot be measured for the store of this URL.
    pub(super) fn new(settings: &LimitSettings, store_url: &str) -> Result<Self> {
        let LimitSettings { max_store, max_unsettled_per_caller, max_new_per_caller, .. } = *settings;
        let max_attempts = settings.max_attempts.unwrap_or(1_000);
        ensure!((1..=1_000_000).contains(&max_attempts), "max-attempts is not within 1 to 1000000");
        ensure!(
            max_unsettled_per_caller != Some(0),
            "max-unsettled-per-caller of 0 would refuse every request"
        );
        match max_store {
            Some(StoreLimit::Records(_)) => ensure!(
                !store_url.starts_with("sqlite:"),
                "max-store counts bytes in a SQLite store, not records: write a size such as 10GiB"
            ),
            Some(StoreLimit::Bytes(_)) => ensure!(
                !store_url.starts_with("memory:"),
                "max-store counts records in a memory store, not bytes: write a number such as 500000records"
            ),
            None => {}
        }
        Ok(Self { max_attempts, max_store, max_unsettled_per_caller, max_new_per_caller })
    }
}

/// The largest size of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreLimit {
    Bytes(u64),
    Records(u64),
}

impl FromStr for StoreLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = match text.trim().strip_suffix("records") {
            Some(number) => number.trim().parse().ok().map(Self::Records),
            None => text.parse().ok().map(|Size(bytes)| Self::Bytes(bytes as u64)),
        };
        let is_some = |limit: &Self| !matches!(limit, Self::Bytes(0) | Self::Records(0));
        limit.filter(is_some).ok_or_else(|| {
            format!(
                "`{text}` is neither a size, such as 10GiB, nor a number of records, such as 5000000records"
            )
        })
    }
}

impl fmt::Display for StoreLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => Size(usize::try_from(*bytes).unwrap_or(usize::MAX)).fmt(f),
            Self::Records(records) => write!(f, "{records}records"),
        }
    }
}

/// A number of events within a time: `1000/1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) within: Duration,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (count, within) = text.split_once('/')?;
            let Span(within) = within.parse().ok()?;
            Some(Self { count: count.trim().parse().ok()?, within })
        };
        let day = Duration::from_secs(86_400);
        let is_within = |rate: &Self| rate.count > 0 && (Duration::from_secs(1)..=day).contains(&rate.within);
        read().filter(is_within).ok_or_else(|| {
            format!("`{text}` is not a rate: write a number and a time of 1s to 1day, such as 1000/1h")
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, Span(self.within))
    }
}

macro_rules! as_text {
    ($($word:ty),+) => { $(
        impl<'de> Deserialize<'de> for $word {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $word {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )+ };
}

as_text!(StoreLimit, Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown() {
        for text in ["10GiB", "512B", "5000000records", "1records"] {
            assert_eq!(text.parse::<StoreLimit>().unwrap().to_string(), text);
        }
        assert_eq!("7 records".parse(), Ok(StoreLimit::Records(7)));
        for bad in ["", "0", "0records", "records", "many", "-1"] {
            assert!(bad.parse::<StoreLimit>().is_err(), "{bad}");
        }
        for text in ["1000/1h", "1/1s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for bad in ["", "5", "5/", "0/1h", "5/0s", "5/2days", "a/1h", "5/1"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
