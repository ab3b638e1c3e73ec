//! The outcome of a write that is for one version of an object.

use kube::api::PatchParams;

use super::TargetError;

#[derive(Clone, Debug)]
pub(super) enum Write<K> {
    /// As it is now.
    Done(Box<K>),
    /// There is no such object any more.
    Missing,
    /// The object is another by now, or the authority is gone: read it again.
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

/// A patch by this field manager.
pub(super) fn managed_by(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}
