//! Pods without a node: the test acts as their kubelet.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{BY, ROLE, TOKEN, sightings::Sightings};
use crate::fixture::BOUND;
use crate::world::World;
use redlock_testkit::eventually;

pub struct Web {
    api: Api<Pod>,
    pub sightings: Sightings,
}

impl Web {
    pub fn of(world: &World) -> Self {
        let namespace = world.namespace.name();
        Self {
            api: Api::namespaced(world.plane.admin(), namespace),
            sightings: Sightings::of(world.plane.admin(), namespace),
        }
    }

    /// Creates a pod with these labels, not ready yet; returns its UID.
    pub async fn make(&self, name: &str, labels: Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let made = self.api.create(&PostParams::default(), &pod).await.unwrap();
        made.uid().unwrap()
    }

    /// Sets the condition Ready as a kubelet would; returns the time before the write.
    pub async fn ready(&self, name: &str, ready: bool) -> Instant {
        let status = if ready { "True" } else { "False" };
        let patch =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
        let before = Instant::now();
        self.api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        before
    }

    /// Sets the condition to True with this time of the transition.
    pub async fn ready_since(&self, name: &str, since: Timestamp) {
        let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": Time(since)});
        let patch = json!({"status": {"phase": "Running", "conditions": [condition]}});
        self.api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Changes the metadata like `kubectl label` and `kubectl annotate`.
    pub async fn change(&self, name: &str, metadata: Value) {
        let parameters = PatchParams {
            field_manager: Some("kubectl-label".into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.api.patch(name, &parameters, &patch).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn names(&self) -> BTreeSet<String> {
        let list = self.api.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect()
    }

    pub async fn get(&self, name: &str) -> Pod {
        self.api.get(name).await.unwrap()
    }

    pub async fn try_get(&self, name: &str) -> Option<Pod> {
        self.api.get_opt(name).await.unwrap()
    }

    /// Waits until exactly these pods have the label.
    pub async fn until(&self, wanted: &[&str]) {
        eventually(BOUND, &format!("{wanted:?} labelled"), async || {
            let found = self.sightings.now();
            if found.iter().eq(wanted) {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }

    /// Waits until one of these pods has the label, and no other pod; returns its name.
    pub async fn until_one_of(&self, wanted: &[&str]) -> String {
        eventually(BOUND, &format!("one of {wanted:?} labelled"), async || {
            let found = self.sightings.now();
            let mut names = found.iter();
            match (names.next(), names.next()) {
                (Some(one), None) if wanted.contains(&one.as_str()) => Ok(one.clone()),
                _ => Err(found),
            }
        })
        .await
    }

    /// Waits until neither the label nor an annotation of it is left on the pod.
    pub async fn bare(&self, name: &str) {
        eventually(BOUND, &format!("{name} has nothing of it"), async || {
            let pod = self.get(name).await;
            let left = pod.labels().get(ROLE).or(pod.annotations().get(TOKEN));
            match left.or(pod.annotations().get(BY)) {
                None => Ok(()),
                Some(left) => Err(left.clone()),
            }
        })
        .await;
    }
}
