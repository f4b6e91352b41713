//! What runs seldom is told to the compiler, which lays it out of the way of the rest.

/// Where this stands runs seldom: `core::hint::cold_path`, which Rust has from 1.95 on.
///
/// Where it stands was measured, and it is not worth it everywhere: `docs/design/0005-measurements.md`, round 30.
#[cold]
#[inline]
pub const fn cold_path() {}
