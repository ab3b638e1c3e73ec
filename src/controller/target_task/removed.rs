//! Stops the targets that were removed from the spec.

use futures_util::future::join_all;

use super::{stopping::Deadline, target::Target};
use crate::{
    api::plan::TargetWork,
    targets::{Step, StopPermit},
};

/// Stops the removed targets, and moves those that are stopped to `left`. Returns the steps of the others.
pub(super) async fn stop_removed(
    (removed, left): (&mut Vec<Target>, &mut Vec<TargetWork>),
    deadline: Deadline,
    permit: &StopPermit,
) -> Vec<Step> {
    let stop = |target| Target::stop(target, deadline, permit);
    let mut steps = join_all(removed.iter_mut().map(stop)).await;
    let mut done = steps.iter().map(Step::is_stopped);
    let stopped = removed.extract_if(.., |_| done.next().unwrap_or(false));
    left.extend(stopped.map(|target| target.work));
    steps.retain(|step| !step.is_stopped());
    steps
}
