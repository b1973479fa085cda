//! The filters of the listing commands.

use clap::Args;
use semel::admin::{Cursor, ListQuery};

use super::key;
use crate::config::Span;

#[derive(Debug, Clone, Args)]
pub(crate) struct Filter {
    /// Of this realm only
    #[arg(long, value_name = "NAME", value_parser = key::realm)]
    realm: Option<String>,

    /// Of this principal only; '' for records without one
    #[arg(long, value_name = "NAME", value_parser = key::principal)]
    principal: Option<String>,

    /// With this key only, in whatever scope
    #[arg(long, value_name = "KEY", value_parser = key::value)]
    key: Option<String>,

    /// With this operation only, such as 'POST /charges'
    #[arg(long, value_name = "TEXT")]
    operation: Option<String>,

    /// First claimed at least this long ago, such as 10m
    #[arg(long, value_name = "DURATION")]
    older_than: Option<Span>,

    /// Without a sign of life of their owner for at least this long, such as 10m
    #[arg(long, value_name = "DURATION")]
    unheard_for: Option<Span>,

    /// Only those whose retention is over, or only the others
    #[arg(long, value_name = "BOOL")]
    expired: Option<bool>,

    /// At most this many; with --all, this many at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,

    /// From where the page before ended, as it said
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,

    /// All of them, page by page
    #[arg(long)]
    pub(crate) all: bool,
}

impl Filter {
    pub(crate) fn query(&self) -> ListQuery {
        ListQuery::default()
            .with_realm(self.realm.clone())
            .with_principal(self.principal.clone())
            .with_value(self.key.clone())
            .with_operation(self.operation.clone())
            .with_expired(self.expired)
            .with_unheard_for(self.unheard_for.map(|span| span.0))
            .with_min_age(self.older_than.map(|span| span.0))
            .with_after(self.after.as_deref().map(Cursor::new))
            .with_limit(self.limit)
    }
}
