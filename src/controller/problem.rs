//! Why an object cannot be used, as conditions say it.

use crate::api::validate::FieldError;

/// A reason of a condition. Its name is part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    InvalidSpec,
    /// A field that cannot change was changed: what it was stays in force.
    ImmutableField,
    StopBudgetTooShort,
    DuplicateLockName,
    /// Another lock switches one of its targets.
    TargetTaken,
    QuorumNotFound,
    QuorumNotUsable,
    ClusterNameNotUnique,
    SecretNotFound,
    SecretKeyMissing,
    SecretNotReadable,
    MastersShared,
    OldMasterStillReachable,
    /// The url of a master is being changed; the old one is in use.
    ChangingUrl,
    /// The quorum is being opened.
    Opening,
}

impl Reason {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InvalidSpec => "InvalidSpec",
            Self::ImmutableField => "ImmutableField",
            Self::StopBudgetTooShort => "StopBudgetTooShort",
            Self::DuplicateLockName => "DuplicateLockName",
            Self::TargetTaken => "TargetTaken",
            Self::QuorumNotFound => "QuorumNotFound",
            Self::QuorumNotUsable => "QuorumNotUsable",
            Self::ClusterNameNotUnique => "ClusterNameNotUnique",
            Self::SecretNotFound => "SecretNotFound",
            Self::SecretKeyMissing => "SecretKeyMissing",
            Self::SecretNotReadable => "SecretNotReadable",
            Self::MastersShared => "MastersShared",
            Self::OldMasterStillReachable => "OldMasterStillReachable",
            Self::ChangingUrl => "ChangingUrl",
            Self::Opening => "Opening",
        }
    }

    /// Whether a lock that was contended for before goes on: a slip of the pen must not stop the work that it guards.
    pub(super) const fn leaves_in_force(self) -> bool {
        matches!(
            self,
            Self::InvalidSpec | Self::StopBudgetTooShort | Self::TargetTaken
        )
    }

    /// Whether what is missing may come by itself within moments of a start.
    pub(super) const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::Opening
                | Self::ChangingUrl
                | Self::QuorumNotFound
                | Self::QuorumNotUsable
                | Self::SecretNotFound
                | Self::SecretKeyMissing
                | Self::SecretNotReadable
        )
    }

    /// Whether somebody has to change this very object; otherwise what is missing may still come.
    pub(super) const fn is_of_the_object(self) -> bool {
        matches!(
            self,
            Self::InvalidSpec
                | Self::ImmutableField
                | Self::StopBudgetTooShort
                | Self::DuplicateLockName
                | Self::TargetTaken
                | Self::MastersShared
                | Self::ClusterNameNotUnique
        )
    }
}

/// See [`Reason`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(super) fn invalid(reason: Reason, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Self::new(reason, texts.join("; "))
    }
}
