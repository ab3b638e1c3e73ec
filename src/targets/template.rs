//! The pod template of an object: how long its pods may take to end.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;

use super::{
    Shared, TargetError,
    shared::{Followed, Known},
};
use crate::api::target::TargetRef;

/// Where the objects of Kubernetes have a pod template.
const TEMPLATES: [&str; 2] = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
const SECONDS: &str = "terminationGracePeriodSeconds";
/// What Kubernetes gives pods that ask for nothing.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// That of one object, wherever it comes and goes.
pub(crate) struct Template {
    api: Api<DynamicObject>,
    reference: TargetRef,
    followed: Followed,
    /// The object whose template was read last.
    read: Option<Known>,
}

impl Template {
    /// By the watch that all targets of its kind and namespace share.
    pub(crate) async fn find(
        client: &Client,
        shared: &Shared,
        namespace: &str,
        reference: &TargetRef,
    ) -> Result<Self, TargetError> {
        let resource: ApiResource = match (&*reference.api_version, &*reference.kind) {
            ("batch/v1", "CronJob") => ApiResource::erase::<CronJob>(&()),
            ("batch/v1", "Job") => ApiResource::erase::<Job>(&()),
            _ => shared.kinds.scaled(client, reference).await?,
        };
        Ok(Self {
            followed: shared.follow(&resource, namespace, &reference.name),
            api: Api::namespaced_with(client.clone(), namespace, &resource),
            reference: reference.clone(),
            read: None,
        })
    }

    /// None without an object, or without a template in it.
    pub(crate) async fn grace(&mut self) -> Result<Option<Duration>, TargetError> {
        let name = &self.reference.name;
        let found = self.api.get_opt(name).await.map_err(|error| {
            let what = format!("reading the pod template of {} {name}", self.reference.kind);
            TargetError::of(what, &error)
        })?;
        self.read = found.as_ref().map(|object| Known::of(&object.metadata));
        Ok(found.and_then(|object| grace(&object.data)))
    }

    /// Until somebody asks for something else of the object than when it was read.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.followed.changed().await;
            let is_another = match (self.followed.known(), &self.read) {
                (Some(known), Some(read)) => known.is_another(read),
                (known, read) => known.is_some() != read.is_some(),
            };
            if is_another {
                return;
            }
        }
    }
}

fn grace(object: &Value) -> Option<Duration> {
    let mut templates = TEMPLATES.iter().filter_map(|path| object.pointer(path));
    let seconds = templates.next()?.get(SECONDS).and_then(Value::as_u64);
    Some(seconds.map_or(USUAL_GRACE, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_stands_in_the_pod_template() {
        let of = |pod: &Value, seconds| {
            let wanted = Some(Duration::from_secs(seconds));
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
}
