//! The tools of the operator: listing records, settling held keys, pruning, and the health of an
//! engine.
//!
//! The binary `semel` is made of these. Records themselves are described in
//! [`store`](crate::store).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), semel::StoreError> {
//! use semel::MemoryStore;
//! use semel::admin::{Inspect, ListQuery};
//! use semel::store::Phase;
//!
//! let store = MemoryStore::new();
//! let held = ListQuery::default().with_phase(Phase::Held);
//! for record in store.list(&held).await?.records {
//!     println!("{:?} was lost in attempt {}", record.key, record.attempt);
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::engine::{Ceiling, StoreHealth};
pub use crate::protocol::answer::OperatorAck;
pub use crate::store::Prune;
pub use crate::store::inspect::{Cursor, Inspect, ListQuery, Page, Stats};
pub use crate::store::pruner::{Pruner, Pruning, continuously_prune};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use crate::store::shared::migration::MigrationStatus;
pub use crate::words::size::StoreSize;
