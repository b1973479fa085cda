//! How much a store keeps.

/// How much a store keeps, as far as that can be told at a small price.
///
/// Each store says in its `size` what is counted. A database of which other tables or keys are a part may count them, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreSize {
    /// How many bytes are in use.
    pub bytes: Option<u64>,
    /// How many records there are, expired ones included.
    pub records: Option<u64>,
}
