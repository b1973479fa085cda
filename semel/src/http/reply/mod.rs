//! The last step, *reply*: the handler's own response, a recorded one, or a refusal.
//!
//! - [`answer`]: the step itself.
//! - [`outcome`]: an outcome as a response, and a response as an outcome.
//! - [`rejection`]: refusals as values.
//! - [`problem`]: problems of HTTP; `details` is the problem of each refusal, with its advice.
//! - [`renderer`]: refusals as responses.
//! - `published`: the policy that clients can read.

pub(in crate::http) mod answer;
pub(in crate::http) mod outcome;
pub(in crate::http) mod rejection;
pub(in crate::http) mod problem;
mod details;
pub(in crate::http) mod renderer;
pub(in crate::http) mod published;
