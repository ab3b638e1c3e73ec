//! Checks whether the API server serves the kind of a target in the way in which its action uses it.

use super::{TargetContext, TargetError, kind::Need, read::Place};
use crate::api::plan::TargetWork;

/// Returns an error if objects of this kind cannot be switched here, or if the discovery failed. A known result is returned
/// without a request.
pub(crate) async fn check_kind(context: &TargetContext, work: &TargetWork) -> Result<(), TargetError> {
    let (object, need) = match work {
        TargetWork::Scale { object, .. } => (object, Need::Scale),
        TargetWork::Patch { object, .. } => (object, Need::Served),
        // Kinds of Kubernetes itself.
        TargetWork::Suspend { .. }
        | TargetWork::OncePerSchedule { .. }
        | TargetWork::LabelPods { .. }
        | TargetWork::Lease { .. } => return Ok(()),
    };
    let found = Place::find(&context.client, &context.shared.kinds, object, need).await;
    found.map(drop)
}
