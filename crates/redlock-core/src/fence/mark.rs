//! The register `slot:<lock>/!mark`: under which lease, and since which one, the pods of a cluster may run.

use std::fmt;

use thiserror::Error;

use crate::{ClusterId, FencingToken, Nonce};

/// The register is a slot of this object of the lock, so it is merged as slots are: the larger token wins, and a tie of
/// different values names no mark. No object of Kubernetes has this name.
pub const MARK_OBJECT: &str = "!mark";

/// The value of the mark after masters with different marks were merged.
const NOBODY: &str = "nobody";

/// The mark of one lease: `<token>|<first>,<cluster UID>,<nonce>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FenceMark {
    pub token: FencingToken,
    /// The token of the first lease since which no other cluster can have started targets.
    pub first: FencingToken,
    cluster_uid: String,
    /// Of the lease that it stands beside.
    pub nonce: Nonce,
}

/// A register or a cluster UID that makes no mark.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MarkError {
    #[error("fence mark {0:?} cannot be read: expected <token>|<first>,<cluster UID>,<nonce>")]
    Text(String),
    #[error(
        "cluster UID {0:?} cannot be part of a fence mark: use a UID without \"@\", such as that of the namespace kube-system"
    )]
    ClusterUid(String),
}

/// What one master shows of the mark of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MarkRegister {
    /// No lease of this lock was ever marked.
    #[default]
    Never,
    /// Masters that were merged had different marks under this token: which one is valid is unknown.
    Split(FencingToken),
    Marked(FenceMark),
}

impl FenceMark {
    /// # Errors
    /// The cluster UID contains an `@`: the merge of slots compares the part before it, and would take two marks for
    /// one.
    pub fn new(
        token: FencingToken,
        first: FencingToken,
        cluster: &ClusterId,
        nonce: Nonce,
    ) -> Result<Self, MarkError> {
        let uid = cluster.uid();
        if uid.contains('@') {
            return Err(MarkError::ClusterUid(uid.to_owned()));
        }
        Ok(Self {
            token,
            first: first.min(token),
            cluster_uid: uid.to_owned(),
            nonce,
        })
    }

    #[must_use]
    pub fn cluster_uid(&self) -> &str {
        &self.cluster_uid
    }

    #[must_use]
    pub fn is_of(&self, cluster: &ClusterId) -> bool {
        self.cluster_uid == cluster.uid()
    }

    /// The register without its token, as a slot names its job.
    #[must_use]
    pub fn body(&self) -> String {
        format!("{},{},{}", self.first, self.cluster_uid, self.nonce)
    }

    fn parse(token: FencingToken, body: &str) -> Option<Self> {
        let (first, rest) = body.split_once(',')?;
        let (uid, nonce) = rest.rsplit_once(',')?;
        let nonce = u128::from_str_radix(nonce, 16)
            .map(Nonce)
            .ok()
            .filter(|n| n.to_string() == nonce)?;
        let first = FencingToken(canonical(first)?);
        let cluster = ClusterId::new("mark", uid).ok()?;
        let mark = Self::new(token, first, &cluster, nonce).ok()?;
        (mark.first == first && first.0 > 0).then_some(mark)
    }
}

impl fmt::Display for FenceMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.token, self.body())
    }
}

/// Only the text that would be written: `parse` also takes a sign.
fn canonical(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

impl MarkRegister {
    /// # Errors
    /// The text is no register of a mark.
    pub fn parse(text: &str) -> Result<Self, MarkError> {
        let bad = || MarkError::Text(text.chars().take(120).collect());
        if text.is_empty() {
            return Ok(Self::Never);
        }
        let (token, body) = text.split_once('|').ok_or_else(bad)?;
        let token = canonical(token).map(FencingToken).ok_or_else(bad)?;
        if body == NOBODY {
            return Ok(if token.0 == 0 {
                Self::Never
            } else {
                Self::Split(token)
            });
        }
        FenceMark::parse(token, body).map(Self::Marked).ok_or_else(bad)
    }

    /// Zero if no lease was ever marked.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        match self {
            Self::Never => FencingToken(0),
            Self::Split(token) => *token,
            Self::Marked(mark) => mark.token,
        }
    }

    /// The register of a majority that has either: the larger token; of a tie of different values, neither.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        match self.token().cmp(&other.token()) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal if self == other => self,
            std::cmp::Ordering::Equal => Self::Split(self.token()),
        }
    }

    /// The greatest of all; [`Self::Never`] where there is no register.
    #[must_use]
    pub fn greatest<'a>(registers: impl IntoIterator<Item = &'a Self>) -> Self {
        let registers = registers.into_iter().cloned();
        registers.reduce(Self::merged).unwrap_or_default()
    }

    /// The mark, if one is known.
    #[must_use]
    pub const fn mark(&self) -> Option<&FenceMark> {
        match self {
            Self::Marked(mark) => Some(mark),
            Self::Never | Self::Split(_) => None,
        }
    }
}
