//! The first step, *read*: from an HTTP request to a key, an intent and a body.
//!
//! - [`read`]: the step itself.
//! - [`key`]: the syntax of the key header.
//! - [`scope`]: the caller whose key it is; [`credentials`] are the headers that distinguish
//!   callers, [`others`] those that suggest that there are several, [`secret`] is the key of the
//!   digests, and [`seal`] its form in the store.
//! - [`fingerprint`]: the parts of a request that make it the same request.
//! - [`body`]: a body of which a part has been read already; [`memory`] is the budget for bodies
//!   and [`pace`] their least rate.

pub(in crate::http) mod read;
pub(in crate::http) mod key;
pub(in crate::http) mod scope;
pub(in crate::http) mod credentials;
pub(in crate::http) mod others;
pub(in crate::http) mod secret;
pub(in crate::http) mod seal;
pub(in crate::http) mod fingerprint;
pub(in crate::http) mod body;
pub(in crate::http) mod pace;
pub(in crate::http) mod memory;
