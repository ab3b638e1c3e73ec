//! The outcome of a write to one version of an object.

use kube::api::PatchParams;

use super::TargetError;

#[derive(Clone, Debug)]
pub(super) enum Write<K> {
    /// The object after the write.
    Done(Box<K>),
    /// The object no longer exists.
    Missing,
    /// The object has changed, or the authority is gone: the object must be read again.
    Late,
}

impl<K> Write<K> {
    pub(super) fn of(answer: kube::Result<K>, what: impl Into<String>) -> Result<Self, TargetError> {
        match answer {
            Ok(object) => Ok(Self::Done(Box::new(object))),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Self::Missing),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Self::Late),
            Err(error) => Err(TargetError::of(what, &error)),
        }
    }
}

/// Returns the parameters of a patch by this field manager.
pub(super) fn managed_by(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}
