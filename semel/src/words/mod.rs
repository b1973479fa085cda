//! The vocabulary: plain data, validated once when it is made.
//!
//! Nothing in this room waits, asks a store or knows tokio.
//! - [`key`]: the scope of a caller and the value that the client chose.
//! - [`text`]: the rule for short printable texts, which keys, owners and notes share.
//! - [`intent`]: the request that a key was used for.
//! - [`digest`]: digests over several parts.
//! - [`fingerprint`]: the digest that tells two requests apart.
//! - [`lease`]: the right to run: token, fence, attempt and deadline.
//! - [`outcome`]: the response that is replayed, with its headers in their stored form.
//! - [`record`]: the row that a store keeps for each key.
//! - [`terms`]: lease, retention and the policy after a crash, within their limits.
//! - [`size`]: the size of a store, as far as it is known cheaply.
//! - [`time`]: moments of a store's clock.
//! - [`error`]: the failure of a store.

pub(crate) mod key;
pub(crate) mod text;
pub(crate) mod intent;
pub(crate) mod digest;
pub(crate) mod fingerprint;
pub(crate) mod lease;
pub(crate) mod outcome;
pub(crate) mod record;
pub(crate) mod terms;
pub(crate) mod size;
pub(crate) mod time;
pub(crate) mod error;
