//! The pods of a target: finds those that have not ended, and deletes those that are late.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions},
};

use super::{Found, StopPermit, TargetError, pages, slim::Pod, write::Write};
use crate::{clock, lease::BootInstant};

/// The time before the end at which pods that still exist are deleted with the remaining grace period.
const DELETE_BEFORE: Duration = Duration::from_secs(4);
/// The same for a pod that its controller has not deleted yet: the pod may be replaced if it is deleted
/// earlier.
const REPLACED_BEFORE: Duration = Duration::from_millis(1_500);
/// The part of the remaining time that a kubelet needs to kill a pod and to report it.
const TO_CONFIRM: Duration = Duration::from_secs(1);

/// The time before the end from which pods that still exist are late.
const LATE: Duration = Duration::from_millis(1_000);
/// The largest number of late pods that are named.
const NAMED: usize = 3;

/// A pod that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Left {
    name: String,
    uid: String,
    /// The grace period of a pod that is being deleted.
    going: Option<i64>,
}

impl Left {
    pub(super) const fn is_terminating(&self) -> bool {
        self.going.is_some()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone)]
pub(super) struct Pods {
    api: Api<Pod>,
    /// The metadata of the same pods.
    metadata: Api<PartialObjectMeta<Pod>>,
    /// The name of the target in messages, as in `Deployment billing/report`.
    of: String,
    /// The UIDs of pods whose grace period was shortened. This happens once for each pod: a pod may use the
    /// time that it was given.
    hurried: Arc<Mutex<HashSet<String>>>,
    /// The late pods, with the text that names them.
    late: Arc<Mutex<Option<Late>>>,
}

/// The names of some late pods, the number of all late pods, and the text.
type Late = (Vec<String>, usize, String);

impl Pods {
    pub(super) fn new(client: &Client, namespace: &str, of: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            metadata: Api::namespaced(client.clone(), namespace),
            of: of.to_owned(),
            hurried: Arc::default(),
            late: Arc::default(),
        }
    }

    /// Returns the pods that have not ended although the time for a stop is over or almost over, and their
    /// nodes.
    pub(super) fn late(&self) -> Option<String> {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.as_ref().map(|(.., text)| text.clone())
    }

    async fn name_late(&self, pods: &[Left], left: Duration) {
        let named = &pods[..pods.len().min(NAMED)];
        let names: Vec<String> = named.iter().map(|pod| pod.name.clone()).collect();
        let set = |late| *self.late.lock().unwrap_or_else(PoisonError::into_inner) = late;
        if left > LATE || pods.is_empty() {
            return set(None);
        }
        let known = |(before, all, _): &Late| *before == names && *all == pods.len();
        let is_known = {
            let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.as_ref().is_some_and(known)
        };
        if is_known {
            return;
        }
        let mut places = Vec::new();
        for name in &names {
            // A list needs no right in addition to those that the operator already uses.
            let this = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = self.api.list(&this).await.ok();
            let node = found.and_then(|list| list.items.into_iter().next()?.spec?.node_name);
            places.push((name.as_str(), node));
        }
        let text = called(&places, pods.len());
        set(Some((names, pods.len(), text)));
    }

    fn failed(&self, error: &kube::Error) -> TargetError {
        TargetError::of(format!("listing the pods of {}", self.of), error)
    }

    pub(super) async fn any_ready(&self, selector: &str) -> Result<bool, TargetError> {
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
            let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
            ready.any(|condition| condition.status == "True")
        };
        let ready = |pod: Pod| is_ready(&pod).then_some(());
        let ready = pages::all(&self.api, alive(selector), ready).await;
        Ok(!ready.map_err(|error| self.failed(&error))?.is_empty())
    }

    /// Returns the pods that have not ended, including those that are being deleted.
    pub(super) async fn left(&self, selector: &str) -> Result<Vec<Left>, TargetError> {
        self.left_of(selector, |_| true).await
    }

    /// Like `left`, for the pods that `belong` accepts: a selector cannot express that condition.
    pub(super) async fn left_of(
        &self,
        selector: &str,
        belong: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Left>, TargetError> {
        let left = self.left_as(selector, |pod| belong(pod).then_some(())).await?;
        Ok(left.into_iter().map(|(pod, ())| pod).collect())
    }

    /// Like `left`, for the pods to which `class` gives one.
    pub(super) async fn left_as<T>(
        &self,
        selector: &str,
        class: impl Fn(&ObjectMeta) -> Option<T>,
    ) -> Result<Vec<(Left, T)>, TargetError> {
        let left = |pod: PartialObjectMeta<Pod>| {
            let metadata = pod.metadata;
            let class = class(&metadata)?;
            let period = metadata.deletion_grace_period_seconds.unwrap_or(0);
            let left = Left {
                name: metadata.name.unwrap_or_default(),
                uid: metadata.uid.unwrap_or_default(),
                going: metadata.deletion_timestamp.map(|_| period),
            };
            Some((left, class))
        };
        let left = pages::all(&self.metadata, alive(selector), left).await;
        left.map_err(|error| self.failed(&error))
    }

    /// Near the end, deletes these pods with the remaining grace period.
    ///
    /// The grace period is never zero: the API server would remove the pod at once, whether or not its processes have
    /// ended, and its absence would prove nothing. With one second, the kubelet confirms the end of the processes.
    pub(super) async fn hurry(
        &self,
        pods: &[Left],
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<(), TargetError> {
        let Some(left) = by.map(|by| by.left(clock::now())) else {
            self.name_late(&[], Duration::ZERO).await;
            return Ok(());
        };
        let hurried = self.hurry_within(pods, left, permit).await;
        // Deletions cannot wait, so the names are read after them.
        self.name_late(pods, left).await;
        hurried
    }

    async fn hurry_within(
        &self,
        pods: &[Left],
        left: Duration,
        permit: &StopPermit,
    ) -> Result<(), TargetError> {
        if left > DELETE_BEFORE {
            return Ok(());
        }
        let grace = grace(left);
        let late = |pod: &&Left| match pod.going {
            Some(period) => period > i64::from(grace),
            None => left <= REPLACED_BEFORE,
        };
        self.hurried()
            .retain(|uid| pods.iter().any(|pod| pod.uid == *uid));
        let mut end = Ok(());
        for pod in pods.iter().filter(late) {
            if self.hurried().contains(&pod.uid) {
                continue;
            }
            if !permit.holds(Found::Running) {
                break;
            }
            // A failed deletion does not hold up the other pods.
            match self.delete(pod, Some(grace)).await {
                Ok(()) => drop(self.hurried().insert(pod.uid.clone())),
                Err(error) => end = Err(error),
            }
        }
        end
    }

    fn hurried(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.hurried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes pods that no controller deletes, with their own grace periods.
    pub(super) async fn end<'a>(
        &self,
        pods: impl Iterator<Item = &'a Left>,
        permit: &StopPermit,
    ) -> Result<(), TargetError> {
        let mut end = Ok(());
        for pod in pods.filter(|pod| !pod.is_terminating()) {
            if !permit.holds(Found::Running) {
                break;
            }
            // A failed deletion does not hold up the other pods.
            end = self.delete(pod, None).await.and(end);
        }
        end
    }

    async fn delete(&self, pod: &Left, grace_seconds: Option<u32>) -> Result<(), TargetError> {
        let parameters = DeleteParams {
            grace_period_seconds: grace_seconds,
            ..DeleteParams::default()
        };
        let parameters = parameters.preconditions(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        });
        let deleted = self.api.delete(&pod.name, &parameters).await;
        // The pod is gone, or its name belongs to another pod.
        Write::of(deleted, format!("deleting pod {} of {}", pod.name, self.of)).map(drop)
    }
}

/// Names pods, as in "pod a on node n, pod b, and 2 more".
fn called(places: &[(&str, Option<String>)], all: usize) -> String {
    let place = |(name, node): &(&str, Option<String>)| match node {
        Some(node) => format!("pod {name} on node {node}"),
        None => format!("pod {name}"),
    };
    let mut texts: Vec<String> = places.iter().map(place).collect();
    if all > places.len() {
        texts.push(format!("and {} more", all - places.len()));
    }
    texts.join(", ")
}

/// Selects pods that have not ended.
fn alive(selector: &str) -> ListParams {
    let alive = "status.phase!=Succeeded,status.phase!=Failed";
    ListParams::default().labels(selector).fields(alive)
}

/// Returns the grace period in whole seconds, which is the resolution of the API.
fn grace(left: Duration) -> u32 {
    let whole = left.saturating_sub(TO_CONFIRM).as_secs();
    u32::try_from(whole).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_late_pods_are_named_with_their_nodes() {
        let node = |name: &str| Some(name.to_owned());
        let places = [("web-0", node("n1")), ("web-1", None), ("web-2", node("n2"))];
        assert_eq!(
            called(&places, 5),
            "pod web-0 on node n1, pod web-1, pod web-2 on node n2, and 2 more"
        );
        assert_eq!(called(&places[..1], 1), "pod web-0 on node n1");
    }

    #[test]
    fn a_pod_gets_the_time_that_is_left_and_never_none() {
        let of = |milliseconds| grace(Duration::from_millis(milliseconds));
        assert_eq!([of(4_000), of(3_750), of(3_000), of(2_999)], [3, 2, 2, 1]);
        assert_eq!([of(1_000), of(10), of(0)], [1, 1, 1]);
    }
}
