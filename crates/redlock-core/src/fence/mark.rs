//! The register `slot:<lock>/!mark`: the lease under which the pods of a cluster may run, and the first lease
//! since which they may.

use std::fmt;

use thiserror::Error;

use crate::{ClusterId, FencingToken, Nonce};

/// The object of a lock whose slot is the register. The register is merged as slots are: the larger token
/// wins, and a tie of different values names no mark. No Kubernetes object has this name.
pub const MARK_OBJECT: &str = "!mark";

/// The value of the mark after masters with different marks were merged.
const NO_MARK: &str = "nobody";

/// The mark of one lease: `<token>|<first>,<cluster UID>,<nonce>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FenceMark {
    pub token: FencingToken,
    /// The token of the first lease since which no other cluster can have started targets.
    pub first: FencingToken,
    cluster_uid: String,
    /// The nonce of the marked lease.
    pub nonce: Nonce,
}

/// The reason why a register or a cluster UID cannot be a mark or a part of one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MarkError {
    #[error("fence mark {0:?} cannot be read: expected <token>|<first>,<cluster UID>,<nonce>")]
    Text(String),
    #[error(
        "cluster UID {0:?} cannot be part of a fence mark: use a UID without \"@\", such as that of the namespace kube-system"
    )]
    ClusterUid(String),
}

/// The mark of a lock, as one master shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MarkRegister {
    /// No lease of this lock was ever marked.
    #[default]
    Never,
    /// Masters with different marks under this token were merged: which mark is valid is unknown.
    Split(FencingToken),
    Marked(FenceMark),
}

impl FenceMark {
    /// # Errors
    /// Returns an error if the cluster UID contains an `@`: the merge of slots compares the part before it,
    /// and would take two marks for one.
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

    /// Returns the register without its token, in the place where a slot names its job.
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

/// Parses a number only in the form in which it is written: `parse` also accepts a sign.
fn canonical(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

impl MarkRegister {
    /// # Errors
    /// Returns an error if the text is not a register of a mark.
    pub fn parse(text: &str) -> Result<Self, MarkError> {
        let bad = || MarkError::Text(text.chars().take(120).collect());
        if text.is_empty() {
            return Ok(Self::Never);
        }
        let (token, body) = text.split_once('|').ok_or_else(bad)?;
        let token = canonical(token).map(FencingToken).ok_or_else(bad)?;
        if body == NO_MARK {
            return Ok(if token.0 == 0 {
                Self::Never
            } else {
                Self::Split(token)
            });
        }
        FenceMark::parse(token, body).map(Self::Marked).ok_or_else(bad)
    }

    /// Returns the token of the mark; zero if no lease was ever marked.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        match self {
            Self::Never => FencingToken(0),
            Self::Split(token) => *token,
            Self::Marked(mark) => mark.token,
        }
    }

    /// Returns the register with the larger token, or [`Self::Split`] for a tie of different values.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        match self.token().cmp(&other.token()) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal if self == other => self,
            std::cmp::Ordering::Equal => Self::Split(self.token()),
        }
    }

    /// Returns the greatest of all registers, or [`Self::Never`] if there is no register.
    #[must_use]
    pub fn greatest<'a>(registers: impl IntoIterator<Item = &'a Self>) -> Self {
        let registers = registers.into_iter().cloned();
        registers.reduce(Self::merged).unwrap_or_default()
    }

    /// Returns the mark, if it is known.
    #[must_use]
    pub const fn mark(&self) -> Option<&FenceMark> {
        match self {
            Self::Marked(mark) => Some(mark),
            Self::Never | Self::Split(_) => None,
        }
    }
}
