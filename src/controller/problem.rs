//! Why an object cannot be used, or a target is not as it should be: reason and message of a condition.

use crate::api::validate::FieldError;

pub(super) use crate::api::vocabulary::ConditionReason as Reason;

impl Reason {
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

    /// Whether a person has to change this very object; otherwise what is missing may still come.
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

    /// Whether trouble of targets lasts until a person changes something. All other trouble may end by itself: an object
    /// is created later, a pod becomes ready, the API server answers again.
    pub(super) const fn is_stuck(self) -> bool {
        matches!(
            self,
            Self::EnforcementConflict
                | Self::Forbidden
                | Self::HolderNotSelected
                | Self::KindUnknown
                | Self::NoScaleSubresource
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
