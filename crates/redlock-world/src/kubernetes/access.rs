//! The verbs of requests, and the record of committed writes.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::object::ObjectKey;

/// The verb of a request, as RBAC names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub const fn is_write(self) -> bool {
        match self {
            Self::Create | Self::Update | Self::Patch | Self::Delete => true,
            Self::Get | Self::List | Self::Watch => false,
        }
    }
}

/// One committed write.
#[derive(Clone, Debug)]
pub struct CommittedWrite {
    pub time: Timestamp,
    pub revision: u64,
    pub caller: String,
    pub verb: Verb,
    /// The subresource of the request, such as `status` or `scale`; empty for the object itself.
    pub subresource: &'static str,
    pub key: ObjectKey,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
}
