//! The pods that remain of an object that does not exist. A deletion with `--cascade=orphan` leaves them and, of a Deployment,
//! the ReplicaSet that replaces them.
//!
//! Without a selector that was read before, the pods themselves are the evidence: the operator need not have seen the
//! object, and has no right to read ReplicaSets.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;

use super::{Scale, missing, stop::SETTLE, subresource::Object};
use crate::{
    api::lock_status::TargetState,
    clock,
    lease::BootInstant,
    targets::{
        ConditionReason, Step, StopPermit, TargetError, fencing::unfenced, owner::controller, pods::Left,
    },
};

/// The time in which the garbage collector deletes the pods of a deleted object. Pods that run on belong to an orphaned
/// controller.
const COLLECTED: Duration = Duration::from_secs(10);
/// The longest part of a generated name before its random end, and the length of that end.
const GENERATED: (usize, usize) = (58, 5);
/// The largest number of pods that are named.
const NAMED: usize = 3;

/// A kind whose controller gives each pod the name of the object, in a label and in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TracedKind {
    Deployment,
    StatefulSet,
}

impl TracedKind {
    fn of(resource: &ApiResource) -> Option<Self> {
        match (&*resource.group, &*resource.kind) {
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Deployment => "pod-template-hash",
            Self::StatefulSet => "statefulset.kubernetes.io/pod-name",
        }
    }

    /// Reports whether the missing object of this name made the pod. The name of a pod alone proves nothing: the label
    /// agrees with it, and no other object controls the pod.
    fn made(self, name: &str, pod: &ObjectMeta) -> bool {
        let label = pod.labels.as_ref().and_then(|labels| labels.get(self.label()));
        let Some(label) = label.filter(|label| !label.is_empty()) else {
            return false;
        };
        let own = pod.name.as_deref().unwrap_or_default();
        let controlled_by = |kind: &str, name: &str| {
            controller(pod).map(|owner| {
                owner.kind == kind && owner.name == name && owner.api_version.starts_with("apps/")
            })
        };
        match self {
            Self::Deployment => {
                let set = format!("{name}-{label}");
                controlled_by("ReplicaSet", &set).unwrap_or_else(|| is_generated(own, &set))
            }
            Self::StatefulSet => {
                let ordinal = own.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
                let is_number =
                    |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                own == label
                    && ordinal.is_some_and(is_number)
                    && controlled_by("StatefulSet", name).unwrap_or(true)
            }
        }
    }
}

/// Reports whether a controller of this name generated the name of the pod. The API server shortens long names.
pub(super) fn is_generated(pod: &str, controller: &str) -> bool {
    let base = format!("{controller}-");
    let (longest, random) = GENERATED;
    let end = pod.strip_prefix(base.get(..longest).unwrap_or(&base));
    end.is_some_and(|end| end.len() == random && end.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// What happens to a pod of a missing object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PodFate {
    /// It is being deleted, or only the selector matches it: it is left until the end of the stop.
    Ends,
    /// It runs on, and is not replaced once it is deleted.
    Orphaned,
    /// This controller replaces it.
    Replaced(String),
}

/// The knowledge by which the pods of a missing object are found.
struct PodTrace<'a> {
    kind: &'a str,
    name: &'a str,
    /// The selector of the object, as it was last read.
    selector: Option<&'a str>,
    traced: Option<TracedKind>,
}

impl<'a> PodTrace<'a> {
    fn selector(&self) -> Option<&'a str> {
        self.selector.or_else(|| self.traced.map(TracedKind::label))
    }

    /// Returns the fate of a pod; `None` for a pod of another object.
    fn fate(&self, pod: &ObjectMeta) -> Option<PodFate> {
        let made = self.traced.is_some_and(|kind| kind.made(self.name, pod));
        // Another object may have the same labels: its controller names it.
        let foreign = self.traced.is_some() && controller(pod).is_some();
        if !made && (self.selector.is_none() || foreign) {
            return None;
        }
        if pod.deletion_timestamp.is_some() {
            return Some(PodFate::Ends);
        }
        Some(match controller(pod) {
            // The garbage collector deletes the pods of the missing object itself.
            Some(owner) if owner.kind == self.kind && owner.name == self.name => PodFate::Ends,
            Some(owner) => PodFate::Replaced(format!("{} {}", owner.kind, owner.name)),
            None if made => PodFate::Orphaned,
            None => PodFate::Ends,
        })
    }
}

/// The pods of a missing object that have not ended.
#[derive(Debug, Default)]
struct RemainingPods {
    /// Pods that are not replaced.
    ending: Vec<Left>,
    orphaned: Vec<Left>,
    replaced: Vec<Left>,
    /// The controller that replaces pods.
    by: Option<String>,
}

impl RemainingPods {
    fn of(pods: Vec<(Left, PodFate)>) -> Self {
        let mut remains = Self::default();
        for (pod, fate) in pods {
            match fate {
                PodFate::Ends => remains.ending.push(pod),
                PodFate::Orphaned => remains.orphaned.push(pod),
                PodFate::Replaced(by) => {
                    remains.by.get_or_insert(by);
                    remains.replaced.push(pod);
                }
            }
        }
        remains
    }

    fn all(&self) -> impl Iterator<Item = &Left> {
        self.replaced.iter().chain(&self.orphaned).chain(&self.ending)
    }

    fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    fn state(&self) -> TargetState {
        if self.is_empty() {
            TargetState::Standby
        } else if self.all().all(Left::is_terminating) {
            TargetState::Changing
        } else {
            TargetState::Active
        }
    }

    /// Names the pods, as in "web-0, web-1, web-2 and 2 more".
    fn names(&self) -> String {
        let names: Vec<&str> = self.all().take(NAMED).map(Left::name).collect();
        let more = self.all().count() - names.len();
        let more = (more > 0).then(|| format!(" and {more} more"));
        names.join(", ") + &more.unwrap_or_default()
    }
}

/// The times at which pods of a missing object were found that a controller replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplacedPods {
    pub(super) first: BootInstant,
    pub(super) last: BootInstant,
}

impl Scale {
    fn trace<'a>(&'a self, object: &Object) -> PodTrace<'a> {
        let traced = TracedKind::of(&object.place().resource);
        PodTrace {
            kind: &self.reference.kind,
            name: &self.reference.name,
            selector: self.selector.as_deref(),
            traced: traced.filter(|_| !forgets_orphans()),
        }
    }

    async fn remains(&self, object: &Object) -> Result<RemainingPods, TargetError> {
        let trace = self.trace(object);
        let Some(selector) = trace.selector() else {
            return Ok(RemainingPods::default());
        };
        let left = object.pods().left_as(selector, |pod| trace.fate(pod)).await?;
        Ok(RemainingPods::of(left))
    }

    pub(super) async fn observe_missing(&self, object: &Object) -> Result<TargetState, TargetError> {
        Ok(self.remains(object).await?.state())
    }

    /// Reports that there is nothing to start. An object whose pods run is not on standby.
    pub(super) async fn start_missing(&self, object: &Object) -> Result<Step, TargetError> {
        let remains = self.remains(object).await?;
        if remains.is_empty() {
            return Ok(missing(object, TargetState::Standby, ""));
        }
        let pods = format!("; pods of it are left: {}", remains.names());
        Ok(missing(object, TargetState::Changing, &pods))
    }

    /// Stops a missing object. It counts as stopped once its pods are gone, too.
    pub(super) async fn stop_missing(
        &mut self,
        object: &Object,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        let remains = self.remains(object).await?;
        let ended = object.pods().end(remains.orphaned.iter(), permit).await;
        // A replaced pod is not deleted: that would only interrupt its work.
        let left: Vec<Left> = remains.orphaned.iter().chain(&remains.ending).cloned().collect();
        object.pods().hurry(&left, by, permit).await?;
        ended?;
        let now = clock::now();
        if let Some(controller) = &remains.by {
            let first = self.replaced.map_or(now, |replaced| replaced.first);
            self.replaced = Some(ReplacedPods { first, last: now });
            if now.since(first) < COLLECTED {
                return Ok(Step::Working(remains.state()));
            }
            let text = not_stopped(object.called(), controller, &remains.names());
            return Ok(Step::trouble(
                remains.state(),
                ConditionReason::TargetNotSafe,
                text,
            ));
        }
        // The controller may be about to create the next pod.
        let settled = self
            .replaced
            .is_none_or(|replaced| now.since(replaced.last) >= SETTLE);
        if !remains.is_empty() {
            return Ok(Step::Working(remains.state()));
        }
        if !settled {
            return Ok(Step::Working(TargetState::Changing));
        }
        self.replaced = None;
        Ok(Step::Done)
    }

    /// Returns a running pod of a missing object that is not fenced.
    pub(super) async fn unfenced_of_missing(&self, object: &Object) -> Result<Option<String>, TargetError> {
        let trace = self.trace(object);
        let Some(selector) = trace.selector() else {
            return Ok(None);
        };
        let belongs = |pod: &ObjectMeta| trace.fate(pod).is_some();
        unfenced(&self.context, (selector, object.called()), belongs).await
    }
}

fn not_stopped(called: &str, controller: &str, pods: &str) -> String {
    format!(
        "{called} does not exist, and its pods run ({pods}): {controller}, which a deletion with --cascade=orphan leaves, \
         replaces each pod that is deleted, so the operator cannot stop them; delete {controller}, or create {called} again, \
         which adopts it. If another Deployment has adopted it, kubectl rollout restart of that Deployment replaces it"
    )
}

#[cfg(test)]
thread_local! {
    static FORGETS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Plants a mistake in this thread: only a replica that has read the selector of a missing object knows its pods.
#[cfg(test)]
pub(crate) fn plant_forgotten_orphans(forgets: bool) {
    FORGETS.set(forgets);
}

#[cfg(test)]
fn forgets_orphans() -> bool {
    FORGETS.get()
}

#[cfg(not(test))]
const fn forgets_orphans() -> bool {
    false
}
