//! The size of a store.

/// The size of a store, as far as it is known cheaply.
///
/// Each store documents what its `size` counts. The figure may cover the whole database, with other
/// tables or keys in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreSize {
    /// The number of bytes in use.
    pub bytes: Option<u64>,
    /// The number of records, expired ones included.
    pub records: Option<u64>,
}
