//! The dialects of idempotency over HTTP, as far as they can be seen from outside.

use clap::ValueEnum;

/// A dialect, by the protocol that defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Dialect {
    /// The IETF draft for the Idempotency-Key header
    Ietf,
    /// Stripe, API v1
    Stripe,
    /// Agentic Commerce Protocol, 2026-04-17
    Acp,
    /// Universal Commerce Protocol
    Ucp,
    /// Iceberg REST
    Iceberg,
}

/// The statuses and headers that a dialect requires.
pub(super) struct Rules {
    pub(super) name: &'static str,
    /// The status for another request with a used key.
    pub(super) mismatch: u16,
    /// The status while the first attempt runs.
    pub(super) in_flight: u16,
    /// Set if a request must have a key.
    pub(super) is_required: bool,
    /// Set if a repeat must be marked.
    pub(super) is_marked: bool,
    /// Set if an answer must repeat the key.
    pub(super) is_echoed: bool,
}

impl Dialect {
    pub(super) const fn rules(self) -> Rules {
        let ietf = Rules {
            name: "ietf",
            mismatch: 422,
            in_flight: 409,
            is_required: false,
            is_marked: false,
            is_echoed: false,
        };
        match self {
            Self::Ietf => ietf,
            Self::Stripe => Rules { name: "stripe", mismatch: 400, is_marked: true, ..ietf },
            Self::Acp => Rules { name: "acp", is_required: true, is_marked: true, is_echoed: true, ..ietf },
            Self::Ucp => Rules { name: "ucp", mismatch: 409, is_required: true, ..ietf },
            Self::Iceberg => Rules { name: "iceberg", ..ietf },
        }
    }
}
