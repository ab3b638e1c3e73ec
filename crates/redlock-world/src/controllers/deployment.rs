//! The controller of Deployments: one ReplicaSet for each template.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClusterObjects, ControllerPlan, ControllerWrite,
    object::{
        Condition, FieldPath, Object, annotation, count, count_or, flag, is_deleting, is_pod_over, label,
        name, namespace, set_count, set_metadata, status_of, text,
    },
    pod_template::{pods_of, set_label, share, template_hashes},
    selector::Owner,
};

const KIND: &str = "Deployment";
const SET: &str = "ReplicaSet";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn reconcile(objects: &dyn ClusterObjects, now: Timestamp) -> ControllerPlan {
    let mut plan = ControllerPlan::default();
    let deployments = objects.list(KIND);
    if deployments.is_empty() {
        return plan;
    }
    let (sets, pods) = (objects.list(SET), objects.list("Pod"));
    for deployment in &deployments {
        let owner = Owner {
            object: deployment,
            api_version: "apps/v1",
            kind: KIND,
        };
        let claimed = owner.claim(SET, &sets, &mut plan);
        let mut rollout = Rollout::new(owner, &claimed);
        if !is_deleting(deployment) {
            rollout.advance(&sets, &pods, &mut plan);
            rollout.write_replicas(&mut plan);
            rollout.clean_up(&mut plan);
        }
        rollout.write_status(now, &mut plan);
    }
    plan
}

/// A ReplicaSet, and the replicas that it gets.
struct ScaledSet {
    set: Object,
    replicas: i64,
}

impl ScaledSet {
    fn available(&self) -> i64 {
        count(&self.set, "/status/availableReplicas")
    }
}

struct Rollout<'a> {
    owner: Owner<'a>,
    deployment: &'a Value,
    replicas: i64,
    new: Option<ScaledSet>,
    old: Vec<ScaledSet>,
}

impl<'a> Rollout<'a> {
    fn new(owner: Owner<'a>, sets: &[Object]) -> Self {
        let deployment = owner.object;
        let template = &deployment["spec"]["template"];
        let hashes = template_hashes(template);
        let is_new = |set: &Object| {
            let found = label(set, HASH);
            hashes.clone().any(|hash| found == Some(&hash))
        };
        let scaled = |set: &Object| ScaledSet {
            set: set.clone(),
            replicas: count_or(set, "/spec/replicas", 1),
        };
        let new = sets.iter().find(|set| is_new(set)).map(scaled);
        let is_old = |set: &&Object| new.as_ref().is_none_or(|new| name(&new.set) != name(set));
        let old = sets.iter().filter(is_old).map(scaled).collect();
        Self {
            owner,
            deployment,
            replicas: count_or(deployment, "/spec/replicas", 1),
            new,
            old,
        }
    }

    fn advance(&mut self, sets: &[Object], pods: &[Object], plan: &mut ControllerPlan) {
        if flag(self.deployment, "/spec/paused") || self.replicas == 0 {
            self.scale_only(sets, plan);
        } else if text(self.deployment, "/spec/strategy/type") == "Recreate" {
            self.recreate(sets, pods, plan);
        } else {
            self.roll(sets, plan);
        }
    }

    /// Scales without a change of the template. With zero replicas nothing is left to roll out, and every set is empty.
    fn scale_only(&mut self, sets: &[Object], plan: &mut ControllerPlan) {
        if self.replicas == 0 {
            self.new
                .iter_mut()
                .chain(&mut self.old)
                .for_each(|set| set.replicas = 0);
            if self.new.is_none() && !flag(self.deployment, "/spec/paused") {
                self.create(0, sets, plan);
            }
            return;
        }
        let active = self.old.iter_mut().filter(|set| set.replicas > 0);
        match (active.last(), &mut self.new) {
            (Some(old), None) => old.replicas = self.replicas,
            (None, Some(new)) => new.replicas = self.replicas,
            (None, None) => {
                if let Some(last) = self.old.iter_mut().max_by_key(|set| revision(&set.set)) {
                    last.replicas = self.replicas;
                }
            }
            // A paused rollout keeps its shares.
            (Some(_), Some(_)) => {}
        }
    }

    fn recreate(&mut self, sets: &[Object], pods: &[Object], plan: &mut ControllerPlan) {
        let scaled_down = self.old.iter().any(|set| set.replicas > 0);
        self.old.iter_mut().for_each(|set| set.replicas = 0);
        let runs = |set: &ScaledSet| pods_of(pods, &set.set).any(|pod| !is_pod_over(pod));
        if scaled_down || self.old.iter().any(runs) {
            return;
        }
        match &mut self.new {
            Some(new) => new.replicas = self.replicas,
            None => self.create(self.replicas, sets, plan),
        }
    }

    fn roll(&mut self, sets: &[Object], plan: &mut ControllerPlan) {
        let rolling = self.deployment.at("/spec/strategy/rollingUpdate");
        let field = |name: &str| rolling.and_then(|rolling| rolling.get(name));
        let surge = share(field("maxSurge"), self.replicas, true);
        let mut unavailable = share(field("maxUnavailable"), self.replicas, false);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let total = self.total();
        let room = (self.replicas + surge - total).max(0);
        match &mut self.new {
            None => {
                let first = room.min(self.replicas);
                return self.create(first, sets, plan);
            }
            Some(new) if new.replicas > self.replicas => new.replicas = self.replicas,
            Some(new) => new.replicas += room.min(self.replicas - new.replicas),
        }
        self.scale_down_old(self.replicas - unavailable);
    }

    /// Takes replicas from the old sets: first those that are not available, then as many as the new set replaces.
    fn scale_down_old(&mut self, min_available: i64) {
        let (new_replicas, new_available) = self
            .new
            .as_ref()
            .map_or((0, 0), |new| (new.replicas, new.available()));
        let mut room = self.total() - min_available - (new_replicas - new_available);
        for old in &mut self.old {
            let unhealthy = (old.replicas - old.available()).clamp(0, room.max(0));
            old.replicas -= unhealthy;
            room -= unhealthy;
        }
        let available: i64 = self.old.iter().map(|old| old.available().min(old.replicas)).sum();
        let mut room = (available + new_available - min_available).max(0);
        for old in &mut self.old {
            let fewer = old.replicas.min(room);
            old.replicas -= fewer;
            room -= fewer;
        }
    }

    fn total(&self) -> i64 {
        self.new.iter().chain(&self.old).map(|set| set.replicas).sum()
    }

    /// Creates the ReplicaSet of the template, with another hash if its name is taken by a set of another owner.
    fn create(&self, replicas: i64, sets: &[Object], plan: &mut ControllerPlan) {
        let deployment = self.deployment;
        let space = namespace(deployment);
        let mut template = deployment["spec"]["template"].clone();
        let called = |hash: &String| format!("{}-{hash}", name(deployment));
        let is_free = |hash: &String| {
            let wanted = called(hash);
            !sets
                .iter()
                .any(|set| name(set) == wanted && namespace(set) == space)
        };
        let Some(hash) = template_hashes(&template).find(is_free) else {
            return;
        };
        set_label(&mut template, HASH, &hash);
        let mut selector = deployment["spec"]["selector"].clone();
        selector["matchLabels"][HASH] = json!(hash);
        plan.create(
            SET,
            json!({
                "apiVersion": "apps/v1",
                "kind": SET,
                "metadata": {
                    "name": called(&hash),
                    "namespace": space,
                    "labels": template["metadata"]["labels"].clone(),
                    "annotations": { REVISION: self.next_revision().to_string() },
                    "ownerReferences": [self.owner.reference()],
                },
                "spec": { "replicas": replicas, "selector": selector, "template": template },
            }),
        );
    }

    fn next_revision(&self) -> i64 {
        let last = self.old.iter().map(|set| revision(&set.set)).max();
        last.unwrap_or(0) + 1
    }

    /// Writes status and revision. The annotation is part of an update of the status, which is no new generation.
    fn write_status(&self, now: Timestamp, plan: &mut ControllerPlan) {
        let mut changed = self.deployment.clone();
        let status = self.status(now);
        if let Some(new) = self.new.as_ref().filter(|_| !is_deleting(self.deployment)) {
            let current = revision(&new.set).max(self.next_revision()).to_string();
            if annotation(self.deployment, REVISION) != Some(&current) {
                set_metadata(&mut changed, "annotations", REVISION, &current);
                changed["status"] = status;
                let kind = KIND.to_owned();
                return plan.push(ControllerWrite::UpdateStatus {
                    kind,
                    object: changed,
                });
            }
        }
        plan.update_status(KIND, self.deployment, status);
    }

    fn write_replicas(&self, plan: &mut ControllerPlan) {
        for scaled in self.old.iter().chain(&self.new) {
            let set = &scaled.set;
            let is_new = self.new.as_ref().is_some_and(|new| name(&new.set) == name(set));
            let current = if is_new {
                revision(set).max(self.next_revision())
            } else {
                revision(set)
            };
            if count_or(set, "/spec/replicas", 1) != scaled.replicas || current != revision(set) {
                let mut changed = Value::clone(set);
                changed["spec"]["replicas"] = json!(scaled.replicas);
                set_metadata(&mut changed, "annotations", REVISION, &current.to_string());
                plan.update(SET, changed);
            }
        }
    }

    /// Deletes the oldest sets beyond the limit of the history, once the rollout is complete.
    fn clean_up(&self, plan: &mut ControllerPlan) {
        let limit = count_or(self.deployment, "/spec/revisionHistoryLimit", 10);
        let empty = |set: &&ScaledSet| set.replicas == 0 && count(&set.set, "/status/replicas") == 0;
        let mut old: Vec<_> = self.old.iter().filter(empty).collect();
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        if excess == 0 || !self.is_complete() {
            return;
        }
        old.sort_by_key(|set| revision(&set.set));
        for set in old.iter().take(excess).filter(|set| !is_deleting(&set.set)) {
            plan.delete(SET, &set.set);
        }
    }

    fn sum(&self, pointer: &str) -> i64 {
        self.new
            .iter()
            .chain(&self.old)
            .map(|set| count(&set.set, pointer))
            .sum()
    }

    fn updated(&self) -> i64 {
        self.new
            .as_ref()
            .map_or(0, |new| count(&new.set, "/status/replicas"))
    }

    fn is_complete(&self) -> bool {
        self.new.is_some()
            && self.updated() == self.replicas
            && self.sum("/status/replicas") == self.replicas
            && self.sum("/status/availableReplicas") == self.replicas
    }

    fn status(&self, now: Timestamp) -> Value {
        let mut status = status_of(self.deployment);
        let available = self.sum("/status/availableReplicas");
        let generation = count(self.deployment, "/metadata/generation");
        for (field, number) in [
            ("observedGeneration", generation),
            ("replicas", self.sum("/status/replicas")),
            ("updatedReplicas", self.updated()),
            ("readyReplicas", self.sum("/status/readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (self.total() - available).max(0)),
        ] {
            set_count(&mut status, field, number);
        }
        let rolling = self.deployment.at("/spec/strategy/rollingUpdate/maxUnavailable");
        let recreates = text(self.deployment, "/spec/strategy/type") == "Recreate";
        let unavailable = if recreates {
            0
        } else {
            share(rolling, self.replicas, false)
        };
        let (enough, reason) = match available >= self.replicas - unavailable {
            true => (true, "MinimumReplicasAvailable"),
            false => (false, "MinimumReplicasUnavailable"),
        };
        set_last(Condition::new("Available", enough, reason, ""), &mut status, now);
        let progress = if self.is_complete() {
            "NewReplicaSetAvailable"
        } else {
            "ReplicaSetUpdated"
        };
        let progressing = Condition::new("Progressing", true, progress, "");
        let paused = Condition {
            status: "Unknown",
            reason: "DeploymentPaused",
            ..progressing
        };
        let is_paused = flag(self.deployment, "/spec/paused");
        set_last(if is_paused { paused } else { progressing }, &mut status, now);
        status
    }
}

/// Sets a condition; one that changes becomes the last.
fn set_last(condition: Condition<'_>, status: &mut Value, now: Timestamp) {
    if condition.set(status, now)
        && let Some(Value::Array(all)) = status.get_mut("conditions")
        && let Some(place) = all.iter().position(|one| one["type"] == condition.kind)
    {
        all[place..].rotate_left(1);
    }
}

fn revision(set: &Value) -> i64 {
    annotation(set, REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
