//! The middle steps, *run* and *settle*: from the handler's response to an outcome.
//!
//! - [`run`]: the call of the handler, on behalf of the engine.
//! - [`settle`]: the decision whether a response completes, releases or abandons its key.
//! - [`headers`]: the headers of a response that are recorded.

pub(in crate::http) mod run;
pub(in crate::http) mod settle;
pub(in crate::http) mod headers;
