//! Types of columns.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean = 0,
    Int32 = 1,
    Int64 = 2,
    Text = 6,
}
