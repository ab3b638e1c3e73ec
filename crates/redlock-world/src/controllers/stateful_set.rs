//! The controller of StatefulSets: pods with ordinals, one after another or in parallel.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan,
    object::{
        FieldPath, Object, count, count_or, is_deleting, is_pod_over, is_pod_ready, label, name, namespace,
        set_count, status_of, text, uid,
    },
    pod_template::{new_pod, set_label, template_hash},
    selector::{Owner, owner_references},
};

const KIND: &str = "StatefulSet";
const CLAIM: &str = "PersistentVolumeClaim";
const HASH: &str = "controller-revision-hash";

pub(super) fn reconcile(objects: &dyn ClusterObjects) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let sets = objects.list(KIND);
    if sets.is_empty() {
        return plan;
    }
    let (pods, claims) = (objects.list("Pod"), objects.list(CLAIM));
    for set in &sets {
        let owner = Owner {
            object: set,
            api_version: "apps/v1",
            kind: KIND,
        };
        let claimed = owner.claim("Pod", &pods, &mut plan);
        let members = Members::new(owner, &claimed);
        if !is_deleting(set) {
            members.advance(&claims, &mut plan);
        }
        plan.update_status(KIND, set, members.status());
    }
    plan
}

struct Members<'a> {
    owner: Owner<'a>,
    set: &'a Value,
    revision: String,
    /// The pods of the wanted ordinals.
    wanted: Vec<(i64, Option<Object>)>,
    /// The pods of other ordinals, the highest first.
    condemned: Vec<Object>,
}

impl<'a> Members<'a> {
    fn new(owner: Owner<'a>, pods: &[Object]) -> Self {
        let set = owner.object;
        let start = count(set, "/spec/ordinals/start");
        let end = start + count_or(set, "/spec/replicas", 1);
        let mut all: Vec<(i64, Object)> = pods
            .iter()
            .filter_map(|pod| Some((ordinal(set, pod)?, pod.clone())))
            .collect();
        all.sort_by_key(|(ordinal, _)| *ordinal);
        let find = |wanted: i64| {
            let found = all.iter().find(|(ordinal, _)| *ordinal == wanted);
            found.map(|(_, pod)| pod.clone())
        };
        let wanted = (start..end).map(|ordinal| (ordinal, find(ordinal))).collect();
        let outside = |(ordinal, _): &&(i64, Object)| !(start..end).contains(ordinal);
        let condemned = all
            .iter()
            .rev()
            .filter(outside)
            .map(|(_, pod)| pod.clone())
            .collect();
        let revision = format!("{}-{}", name(set), template_hash(&set["spec"]["template"]));
        Self {
            owner,
            set,
            revision,
            wanted,
            condemned,
        }
    }

    fn is_ordered(&self) -> bool {
        text(self.set, "/spec/podManagementPolicy") != "Parallel"
    }

    fn advance(&self, claims: &[Object], plan: &mut ControllerPlan) {
        if self.create_missing(claims, plan) && self.is_ordered() {
            return;
        }
        self.release_claims(claims, plan);
        if self.delete_condemned(plan) && self.is_ordered() {
            return;
        }
        if text(self.set, "/spec/updateStrategy/type") != "OnDelete" {
            self.update(plan);
        }
    }

    /// Creates the missing pods. Returns whether a pod is not ready yet; with ordered pods, nothing after it is done.
    fn create_missing(&self, claims: &[Object], plan: &mut ControllerPlan) -> bool {
        let mut waits = false;
        for (ordinal, pod) in &self.wanted {
            match pod {
                None => {
                    self.create_claims(*ordinal, claims, plan);
                    plan.create("Pod", self.pod(*ordinal));
                    waits = true;
                }
                Some(pod) if is_pod_over(pod) => {
                    if !is_deleting(pod) {
                        plan.delete("Pod", pod);
                    }
                    waits = true;
                }
                Some(pod) => waits |= is_unavailable(pod),
            }
            if waits && self.is_ordered() {
                return true;
            }
        }
        waits
    }

    /// Deletes the pods that are not wanted. Returns whether one of them still exists.
    fn delete_condemned(&self, plan: &mut ControllerPlan) -> bool {
        let all = self.wanted.iter().filter_map(|(_, pod)| pod.as_ref());
        let mut all = all.chain(self.condemned.iter().rev());
        let first_unavailable = all.find(|pod| is_unavailable(pod)).map(|pod| uid(pod));
        for pod in &self.condemned {
            let is_first = first_unavailable == Some(uid(pod));
            let waits = self.is_ordered() && !is_pod_ready(pod) && first_unavailable.is_some() && !is_first;
            if !is_deleting(pod) && !waits {
                plan.delete("Pod", pod);
            }
            if self.is_ordered() {
                return true;
            }
        }
        !self.condemned.is_empty()
    }

    /// Deletes the pod with the highest ordinal that has an older template, one at a time.
    fn update(&self, plan: &mut ControllerPlan) {
        let partition = count(self.set, "/spec/updateStrategy/rollingUpdate/partition");
        for (ordinal, pod) in self.wanted.iter().rev() {
            let Some(pod) = pod.as_ref().filter(|_| *ordinal >= partition) else {
                return;
            };
            if label(pod, HASH) != Some(&self.revision) && !is_deleting(pod) {
                return plan.delete("Pod", pod);
            }
            if is_unavailable(pod) {
                return;
            }
        }
    }

    fn pod(&self, ordinal: i64) -> Value {
        let (set, pod_name) = (self.set, self.pod_name(ordinal));
        let template = &set["spec"]["template"];
        let mut pod = new_pod(template, namespace(set), &pod_name, &self.owner.reference());
        set_label(&mut pod, HASH, &self.revision);
        set_label(&mut pod, "statefulset.kubernetes.io/pod-name", &pod_name);
        set_label(&mut pod, "apps.kubernetes.io/pod-index", &ordinal.to_string());
        pod["spec"]["hostname"] = json!(pod_name);
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
        if self.claim_templates().next().is_some() {
            let volumes = self.claim_templates().map(|template| {
                let claim = format!("{}-{pod_name}", name(template));
                json!({"name": name(template), "persistentVolumeClaim": {"claimName": claim}})
            });
            let own: Vec<Value> = volumes.collect();
            match &mut pod["spec"]["volumes"] {
                Value::Array(volumes) => volumes.extend(own),
                volumes => *volumes = Value::Array(own),
            }
        }
        pod
    }

    fn pod_name(&self, ordinal: i64) -> String {
        format!("{}-{ordinal}", name(self.set))
    }

    fn claim_templates(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let templates = self
            .set
            .at("/spec/volumeClaimTemplates")
            .and_then(Value::as_array);
        templates.into_iter().flatten()
    }

    fn create_claims(&self, ordinal: i64, claims: &[Object], plan: &mut ControllerPlan) {
        let space = namespace(self.set);
        for template in self.claim_templates() {
            let claim = format!("{}-{}", name(template), self.pod_name(ordinal));
            if claims
                .iter()
                .any(|one| name(one) == claim && namespace(one) == space)
            {
                continue;
            }
            let labels = self.set.at("/spec/selector/matchLabels");
            let object = json!({
                "apiVersion": "v1",
                "kind": CLAIM,
                "metadata": {"name": claim, "namespace": space, "labels": labels},
                "spec": template["spec"].clone(),
                "status": {"phase": "Bound"},
            });
            plan.create(CLAIM, object);
        }
    }

    /// With `whenScaled: Delete`, makes each condemned pod the owner of its claims, so that they are deleted with it.
    fn release_claims(&self, claims: &[Object], plan: &mut ControllerPlan) {
        let policy = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled";
        if text(self.set, policy) != "Delete" {
            return;
        }
        for pod in &self.condemned {
            for template in self.claim_templates() {
                let wanted = format!("{}-{}", name(template), name(pod));
                let is = |claim: &&Object| name(claim) == wanted && namespace(claim) == namespace(pod);
                let owned = |claim: &Object| owner_references(claim).iter().any(|one| one["uid"] == uid(pod));
                if let Some(claim) = claims.iter().find(is).filter(|claim| !owned(claim)) {
                    let mut claim = Value::clone(Arc::as_ref(claim));
                    let owner =
                        json!({"apiVersion": "v1", "kind": "Pod", "name": name(pod), "uid": uid(pod)});
                    claim["metadata"]["ownerReferences"] = json!([owner]);
                    plan.update(CLAIM, claim);
                }
            }
        }
    }

    /// Counts as the real controller does: `replicas` includes pods that are being deleted.
    fn status(&self) -> Value {
        let mut status = status_of(self.set);
        let pods = self.wanted.iter().filter_map(|(_, pod)| pod.as_ref());
        let pods: Vec<&Object> = pods.chain(&self.condemned).collect();
        let number = |is: &dyn Fn(&Value) -> bool| {
            let pods = pods.iter().filter(|pod| is(pod));
            i64::try_from(pods.count()).unwrap_or(i64::MAX)
        };
        let revision_is =
            |pod: &Value, revision: &str| !is_deleting(pod) && label(pod, HASH) == Some(revision);
        let updated = number(&|pod| revision_is(pod, &self.revision));
        let ready = number(&is_pod_ready);
        let replicas = number(&|_| true);
        let recorded = text(self.set, "/status/currentRevision");
        let wanted = count_or(self.set, "/spec/replicas", 1);
        let complete = updated == wanted && ready == wanted;
        let current_revision = match recorded.is_empty() || complete {
            true => self.revision.clone(),
            false => recorded.to_owned(),
        };
        let current = number(&|pod| revision_is(pod, &current_revision));
        status["replicas"] = json!(replicas);
        status["availableReplicas"] = json!(ready);
        status["currentRevision"] = json!(current_revision);
        status["updateRevision"] = json!(self.revision);
        for (field, number) in [
            ("observedGeneration", count(self.set, "/metadata/generation")),
            ("readyReplicas", ready),
            ("currentReplicas", current),
            ("updatedReplicas", updated),
        ] {
            set_count(&mut status, field, number);
        }
        status
    }
}

fn is_unavailable(pod: &Value) -> bool {
    is_deleting(pod) || !is_pod_ready(pod)
}

fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    name(pod).strip_prefix(name(set))?.strip_prefix('-')?.parse().ok()
}
