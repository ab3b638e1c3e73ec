//! Reads the parts of an object that its scale lacks: the time that its pods may take to end, and the type of its
//! rollouts.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;

use super::{
    Shared, TargetError,
    kind::Need,
    read::Place,
    rollout::{Rollout, rollout},
    shared::{Followed, Known},
};
use crate::api::{target::TargetRef, validate::Grace};

/// The paths of the pod template's spec in the built-in kinds of Kubernetes.
const TEMPLATES: [&str; 2] = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
const SECONDS: &str = "terminationGracePeriodSeconds";
/// The default grace period of Kubernetes.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// The values that were read from an object. A value is unknown if the object does not set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) grace: Option<Grace>,
    pub(crate) rollout: Option<Rollout>,
}

/// The pod template of one object, which may be deleted and created again.
pub(crate) struct Template {
    api: Api<DynamicObject>,
    place: Place,
    reference: TargetRef,
    followed: Followed,
    /// The object whose template was read last.
    known: Option<Known>,
}

impl Template {
    /// Finds the object, and follows it with the watch that all targets of its kind and namespace share.
    pub(crate) async fn find(
        client: &Client,
        shared: &Shared,
        namespace: &str,
        reference: &TargetRef,
    ) -> Result<Self, TargetError> {
        let batch = match (&*reference.api_version, &*reference.kind) {
            ("batch/v1", "CronJob") => Some(ApiResource::erase::<CronJob>(&())),
            ("batch/v1", "Job") => Some(ApiResource::erase::<Job>(&())),
            _ => None,
        };
        let kinds = &shared.kinds;
        let place = match batch {
            Some(resource) => Place::of(client, kinds, reference, Need::Served, resource),
            None => Place::find(client, kinds, reference, Need::Scale).await?,
        };
        Ok(Self {
            followed: shared.follow(&place.resource, namespace, &reference.name),
            api: Api::namespaced_with(client.clone(), namespace, &place.resource),
            place,
            reference: reference.clone(),
            known: None,
        })
    }

    /// Reads the object; `None` if it does not exist.
    pub(crate) async fn read(&mut self) -> Result<Option<Content>, TargetError> {
        let name = &self.reference.name;
        let what = || format!("reading the pod template of {} {name}", self.reference.kind);
        let found = self.place.settle(what, self.api.get(name).await).await?;
        self.known = found.as_ref().map(|object| Known::of_metadata(&object.metadata));
        let content = |object: DynamicObject| Content {
            grace: grace(&object.data),
            rollout: rollout(&self.reference, &object.data),
        };
        Ok(found.map(content))
    }

    /// Reports whether the watch shows changes of the object.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed.trouble().is_none()
    }

    /// Waits until the desired state of the object differs from the one that was read, or until the object
    /// can no longer be followed.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.followed.changed().await;
            if self.followed.trouble().is_some() {
                return;
            }
            let is_another = match (self.followed.known(), &self.known) {
                (Some(known), Some(read)) => known.is_another(read),
                (known, read) => known.is_some() != read.is_some(),
            };
            if is_another {
                return;
            }
        }
    }
}

fn grace(object: &Value) -> Option<Grace> {
    let mut templates = TEMPLATES.iter().filter_map(|path| object.pointer(path));
    let seconds = templates.next()?.get(SECONDS).and_then(Value::as_u64);
    let policy = object.pointer("/spec/podManagementPolicy");
    Some(Grace {
        period: seconds.map_or(USUAL_GRACE, Duration::from_secs),
        one_by_one: policy.and_then(Value::as_str) == Some("OrderedReady"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_stands_in_the_pod_template() {
        let of = |pod: &Value, seconds| {
            let wanted = Some(Grace::from(Duration::from_secs(seconds)));
            assert_eq!(grace(&json!({"spec": {"template": pod}})), wanted);
            assert_eq!(
                grace(&json!({"spec": {"jobTemplate": {"spec": {"template": pod}}}})),
                wanted
            );
        };
        of(&json!({"spec": {"terminationGracePeriodSeconds": 60}}), 60);
        of(&json!({"spec": {"terminationGracePeriodSeconds": 0}}), 0);
        of(&json!({"spec": {}}), 30);
        assert_eq!(grace(&json!({"spec": {"replicas": 1}})), None);
    }

    #[test]
    fn pods_of_an_ordered_stateful_set_end_one_by_one() {
        for (policy, one_by_one) in [("OrderedReady", true), ("Parallel", false)] {
            let object = json!({"spec": {"podManagementPolicy": policy, "template": {"spec": {}}}});
            assert_eq!(grace(&object).unwrap().one_by_one, one_by_one, "{policy}");
        }
    }
}
