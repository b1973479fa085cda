//! The errors of single operations.

pub use crate::engine::policy::PolicyError;
pub use crate::protocol::answer::LeaseLost;
pub use crate::words::fingerprint::FingerprintError;
pub use crate::words::intent::IntentError;
pub use crate::words::key::KeyError;
pub use crate::words::lease::TokenError;
pub use crate::words::outcome::OutcomeError;
pub use crate::words::terms::TermsError;
pub use crate::words::text::TextError;
