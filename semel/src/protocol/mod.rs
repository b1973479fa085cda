//! The protocol as pure functions: claims, answers, and the rule that decides between them.
//!
//! The model checker, the random histories and every store run this code. It is public for them,
//! and not part of the stable interface.
//! - [`ask`]: a claim as it is sent to a store.
//! - [`answer`]: the answers of a store.
//! - [`draft`]: the writes to a record.
//! - [`decide`]: the rule, in one place.
//! - [`slot`]: the effect of each primitive on one record, as a program.

pub mod ask;
pub mod answer;
pub mod draft;
pub mod decide;
pub mod slot;
