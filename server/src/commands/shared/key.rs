//! The key that a command works on.

use anyhow::Result;
use clap::Args;
use semel::admin::{Inspect, ListQuery};
use semel::error::KeyError;
use semel::store::Record;
use semel::{Key, Scope, Timestamp};

use crate::exit::Exit;
use crate::output::{escaped, quoted};

#[derive(Debug, Clone, Args)]
pub(crate) struct KeyArgs {
    /// The key, as the client sent it
    #[arg(value_name = "KEY", value_parser = value)]
    key: String,

    /// The realm of the key; needed only if the key is in several scopes
    #[arg(long, value_name = "NAME", value_parser = realm)]
    realm: Option<String>,

    /// The principal of the key, which may be ''; needed only if the key is in several scopes
    #[arg(long, value_name = "NAME", value_parser = principal)]
    principal: Option<String>,
}

/// A record, and the store's clock at the moment it was read.
pub(crate) struct Seen {
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
}

/// The number of scopes in the message for a key that is in several.
const MAX_NAMED: usize = 20;
/// The number of records in one page of the search.
const PAGE: u32 = 100;

pub(crate) fn value(text: &str) -> Result<String, KeyError> {
    Key::new("any", text).map(|_| text.to_owned())
}

pub(crate) fn realm(text: &str) -> Result<String, KeyError> {
    Scope::new(text).map(|_| text.to_owned())
}

pub(crate) fn principal(text: &str) -> Result<String, KeyError> {
    Scope::new("any")?.with_principal(text).map(|_| text.to_owned())
}

impl KeyArgs {
    /// The one record of this key, expired or not.
    ///
    /// # Errors
    /// If there is none, or the key is in several scopes.
    pub(crate) async fn record(&self, store: &dyn Inspect) -> Result<Seen> {
        self.only(self.seen(store, None).await?)
    }

    /// The one key that can be changed: an expired record counts as none.
    ///
    /// # Errors
    /// If there is none, or the key is in several scopes.
    pub(crate) async fn to_change(&self, store: &dyn Inspect) -> Result<Key> {
        if let (Some(realm), Some(principal)) = (&self.realm, &self.principal) {
            return Ok(Scope::new(realm)?.with_principal(principal)?.key(&self.key)?);
        }
        Ok(self.only(self.seen(store, Some(false)).await?)?.record.key)
    }

    /// The error for a key without a record.
    pub(crate) fn missing(&self) -> anyhow::Error {
        let of = |name: &str, part: &Option<String>| match part {
            Some(part) => format!(", {name} {}", quoted(part)),
            None => String::new(),
        };
        Exit::Missing.because(format!(
            "there is no record of the key {}{}{}, or its retention is over",
            quoted(&self.key),
            of("realm", &self.realm),
            of("principal", &self.principal)
        ))
    }

    fn only(&self, mut seen: Vec<Seen>) -> Result<Seen> {
        match (seen.pop(), seen.len()) {
            (None, _) => Err(self.missing()),
            (Some(seen), 0) => Ok(seen),
            (Some(last), _) => {
                seen.push(last);
                Err(self.ambiguous(&seen))
            }
        }
    }

    fn ambiguous(&self, seen: &[Seen]) -> anyhow::Error {
        let mut lines: Vec<String> = seen.iter().take(MAX_NAMED).map(scope_flags).collect();
        if let more @ 1.. = seen.len().saturating_sub(MAX_NAMED) {
            lines.push(format!("and {more} more"));
        }
        Exit::Ambiguous.because(format!(
            "the key {} is in {} scopes; add one of\n  {}",
            quoted(&self.key),
            seen.len(),
            lines.join("\n  ")
        ))
    }

    /// The records of the key in all scopes that match.
    async fn seen(&self, store: &dyn Inspect, expired: Option<bool>) -> Result<Vec<Seen>> {
        let mut query = ListQuery::default()
            .with_realm(self.realm.clone())
            .with_principal(self.principal.clone())
            .with_value(Some(self.key.clone()))
            .with_expired(expired)
            .with_limit(PAGE);
        let mut seen = Vec::new();
        loop {
            let page = store.list(&query).await?;
            seen.extend(page.records.into_iter().map(|record| Seen { record, now: page.now }));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(seen),
            }
        }
    }
}

/// The flags that name a scope.
fn scope_flags(Seen { record, now }: &Seen) -> String {
    let scope = record.key.scope();
    let expired = if record.is_expired(*now) { "   (expired)" } else { "" };
    format!("{} {}{expired}", flag("realm", scope.realm()), flag("principal", scope.principal()))
}

/// A flag as it can be typed, in the form `--name=value` where a value that begins with a hyphen
/// would be taken for a flag.
pub(crate) fn flag(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("--{name}{between}{}", quoted(value))
}

/// A key for people: with its realm, and with its principal if it has one.
pub(crate) fn named(key: &Key) -> String {
    let (realm, principal) = (key.scope().realm(), key.scope().principal());
    let principal =
        if principal.is_empty() { String::new() } else { format!(", principal {}", quoted(principal)) };
    format!("{} (realm {}{principal})", escaped(key.value()), quoted(realm))
}
