//! The middle steps, *run* and *settle*: from the handler's response to an outcome.
//!
//! - [`run`]: the call of the handler, on behalf of the engine.
//! - [`verdict`]: the decision whether a response is recorded, released or abandoned.
//! - [`headers`]: the headers of a response that are recorded.

pub(in crate::http) mod run;
pub(in crate::http) mod verdict;
pub(in crate::http) mod headers;
