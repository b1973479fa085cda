//! What handlers do, and what is done to them.
