//! Durations and sizes as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// A duration with its unit: `500ms`, `30s`, `5m`, `24h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = humantime::parse_duration(text.trim());
        read.map(Self).map_err(|error| {
            format!("`{text}` is not a duration ({error}); write it with a unit, such as 500ms, 30s, 5m, 24h or 7d")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A number of bytes: `512`, `64KiB`, `1MiB`, `8MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

const UNITS: [(&str, usize); 7] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("b", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit)))
            .unwrap_or((&lower, 1));
        let number: Option<usize> = number.trim().parse().ok();
        number.and_then(|number| number.checked_mul(unit)).map(Self).ok_or_else(|| {
            format!("`{text}` is not a size; write a whole number of bytes, or one with a unit, such as 64KiB or 1MiB")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = ["GiB", "MiB", "KiB"].iter().zip([1 << 30, 1 << 20, 1 << 10]);
        for (name, unit) in binary {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// The two forms of either in a file: text, or a number of bytes.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a text such as \"30s\" or \"1MiB\"")]
enum Written {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
        .map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
        .map_err(de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("0", 0, "0B"),
            ("512", 512, "512B"),
            ("1 KiB", 1_024, "1KiB"),
            ("8mb", 8_000_000, "8000000B"),
            ("1MiB", 1 << 20, "1MiB"),
            ("3GiB", 3 << 30, "3GiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, &*size.to_string()), (bytes, shown), "{text}");
        }
        for bad in ["", "-1", "1.5MiB", "many", "99999999999999999999", "99999999999GiB"] {
            assert!(bad.parse::<Size>().unwrap_err().contains("is not a size"), "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!("1m 30s".parse::<Span>().unwrap(), Span(Duration::from_secs(90)));
        assert_eq!(Span(Duration::from_secs(90)).to_string(), "1m 30s");
        for bad in ["", "30", "-1s", "soon"] {
            assert!(bad.parse::<Span>().unwrap_err().contains("with a unit"), "{bad}");
        }
    }
}
