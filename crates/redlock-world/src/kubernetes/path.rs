//! The path of a field, formatted only for errors.

use std::fmt;

/// A path, as a list from the field to the root.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldPath<'a> {
    Root,
    Field(&'a FieldPath<'a>, &'a str),
    Index(&'a FieldPath<'a>, usize),
}

impl<'a> FieldPath<'a> {
    pub(super) const fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(super) const fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
