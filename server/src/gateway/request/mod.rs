//! One request: the checks before anything is claimed, the route, and the call of the layer.
//!
//! - [`serve`]: the steps of a request.
//! - [`door`]: requests that are refused before a route is looked for.
//! - [`table`]: the routes, each with its layer and upstream.
//! - [`caller`]: the caller of a route, where that is not left to the layer.
//! - [`jwt`]: bearer tokens.
//! - [`passing`]: the limit of requests that are passed on without a key.
//! - [`problem`]: the gateway's own problem details.

pub(in crate::gateway) mod serve;
pub(in crate::gateway) mod door;
pub(in crate::gateway) mod table;
pub(in crate::gateway) mod caller;
pub(in crate::gateway) mod jwt;
pub(in crate::gateway) mod passing;
pub(in crate::gateway) mod problem;
