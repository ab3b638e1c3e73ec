//! Describes why an object cannot be used, or a target is not in the desired state: reason and message of a condition.

use crate::api::validate::FieldError;

pub(super) use crate::api::vocabulary::ConditionReason as Reason;

impl Reason {
    /// Reports whether a lock that was contended for stays in force: a typo must not stop the work that the lock guards.
    /// The name, or the lock, of the other ones belongs to another cluster or object.
    pub(super) const fn leaves_in_force(self) -> bool {
        !self.is_of_another_cluster() && !matches!(self, Self::DuplicateLockName)
    }

    /// Reports whether the spec itself is not valid, whatever the other objects are.
    pub(super) const fn is_of_the_spec(self) -> bool {
        matches!(self, Self::InvalidSpec | Self::StopBudgetTooShort)
    }

    /// Reports whether the problem may disappear shortly after a start.
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

    /// Reports whether a person has to change this very object; otherwise a change elsewhere may resolve the problem.
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
                | Self::ClusterCopied
        )
    }

    /// Reports whether another cluster has the name of this one.
    pub(super) const fn is_of_another_cluster(self) -> bool {
        matches!(self, Self::ClusterNameNotUnique | Self::ClusterCopied)
    }

    /// Reports whether the trouble of targets lasts until a person changes something. All other trouble may end without
    /// a person: an object is created later, a pod becomes ready, the API server answers again.
    pub(super) const fn is_stuck(self) -> bool {
        matches!(
            self,
            Self::EnforcementConflict
                | Self::Forbidden
                | Self::HolderNotSelected
                | Self::KindClusterScoped
                | Self::KindUnknown
                | Self::NoScaleSubresource
                | Self::NotFenced
                | Self::SelectorInvalid
                | Self::TargetNotSafe
        )
    }
}

/// Reason and message of a condition.
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
