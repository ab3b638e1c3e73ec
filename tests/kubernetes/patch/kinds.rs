//! Lists the documented kinds, with the definitions of their projects if a package registry has them.

use serde_json::Value;

/// The definitions in `tests/corpus/crds`.
pub const DEFINITIONS: [&str; 6] = [
    "applications",
    "flinkdeployments",
    "kustomizations",
    "localqueues",
    "objects",
    "scaledobjects",
];

/// A kind with the field that a lock switches. The object of the test is called `it`.
#[derive(Clone, Copy)]
pub struct Kind {
    pub group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    path: &'static str,
    /// The active value as JSON; if empty, the field is removed.
    active: &'static str,
    standby: &'static str,
    pub manifest: &'static str,
}

pub const KINDS: [Kind; 8] = [
    Kind {
        group: "kustomize.toolkit.fluxcd.io",
        version: "v1",
        kind: "Kustomization",
        plural: "kustomizations",
        path: "/spec/suspend",
        active: "false",
        standby: "true",
        manifest: "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: it}\nspec:\n  \
                   interval: 10m\n  prune: true\n  path: ./apps\n  sourceRef: {kind: GitRepository, name: apps}\n",
    },
    Kind {
        group: "argoproj.io",
        version: "v1alpha1",
        kind: "Application",
        plural: "applications",
        path: "/spec/syncPolicy/automated/enabled",
        active: "true",
        standby: "false",
        manifest: "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: it}\nspec:\n  project: default\n  \
                   source: {repoURL: https://git.example/apps, path: .}\n  destination: {namespace: apps}\n  \
                   syncPolicy: {automated: {prune: true}}\n",
    },
    Kind {
        group: "keda.sh",
        version: "v1alpha1",
        kind: "ScaledObject",
        plural: "scaledobjects",
        path: "/metadata/annotations/autoscaling.keda.sh~1paused-replicas",
        active: "",
        standby: "\"0\"",
        manifest: "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: it, annotations: {team: a}}\nspec:\n  \
                   scaleTargetRef: {name: consumer}\n  \
                   triggers: [{type: cron, metadata: {timezone: Etc/UTC, start: 0 6 * * *, end: 0 20 * * *}}]\n",
    },
    Kind {
        group: "kubernetes.m.crossplane.io",
        version: "v1alpha1",
        kind: "Object",
        plural: "objects",
        path: "/metadata/annotations/crossplane.io~1paused",
        active: "\"false\"",
        standby: "\"true\"",
        manifest: "apiVersion: kubernetes.m.crossplane.io/v1alpha1\nkind: Object\nmetadata: {name: it}\nspec:\n  \
                   forProvider: {manifest: {apiVersion: v1, kind: ConfigMap, metadata: {namespace: apps}}}\n  \
                   providerConfigRef: {kind: ProviderConfig, name: default}\n",
    },
    Kind {
        group: "kueue.x-k8s.io",
        version: "v1beta2",
        kind: "LocalQueue",
        plural: "localqueues",
        path: "/spec/stopPolicy",
        active: "\"None\"",
        standby: "\"HoldAndDrain\"",
        manifest: "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: it}\nspec: {clusterQueue: all}\n",
    },
    Kind {
        group: "flink.apache.org",
        version: "v1beta1",
        kind: "FlinkDeployment",
        plural: "flinkdeployments",
        path: "/spec/job/state",
        active: "\"running\"",
        standby: "\"suspended\"",
        manifest: FLINK,
    },
    // This map has only one owner for all of its keys.
    Kind {
        group: "",
        version: "v1",
        kind: "Service",
        plural: "services",
        path: "/spec/selector",
        active: r#"{"app": "web", "tier": "front"}"#,
        standby: r#"{"app": "none"}"#,
        manifest: "apiVersion: v1\nkind: Service\nmetadata: {name: it}\nspec: {ports: [{port: 80}]}\n",
    },
    // ExternalDNS publishes no record of an Ingress that names another controller.
    Kind {
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        plural: "ingresses",
        path: "/metadata/annotations/external-dns.alpha.kubernetes.io~1controller",
        active: "",
        standby: "\"none\"",
        manifest: "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: it}\nspec:\n  \
                   defaultBackend: {service: {name: web, port: {number: 80}}}\n",
    },
];

impl Kind {
    pub const fn field(&self) -> (&'static str, &'static str, &'static str) {
        (self.group, self.plural, self.path)
    }

    /// Returns the resource as kubectl accepts it.
    pub fn resource(&self) -> String {
        format!("{}.{}.{}", self.plural, self.version, self.group)
    }

    pub fn target(&self, more: &str) -> String {
        let Self {
            group,
            version,
            kind,
            path,
            ..
        } = self;
        let slash = if group.is_empty() { "" } else { "/" };
        let value = |name: &str, value: &str| {
            if value.is_empty() {
                String::new()
            } else {
                format!(", {name}: {value}")
            }
        };
        let values = value("active", self.active) + &value("standby", self.standby);
        format!(
            "{{name: {}, action: Patch, ref: {{apiVersion: {group}{slash}{version}, kind: {kind}, name: it}}, \
             patch: {{fields: [{{path: {path}{values}}}]}}, {more}}}",
            kind.to_lowercase()
        )
    }

    /// Returns the path as a JSON pointer for `serde_json`.
    pub fn pointer(&self) -> String {
        self.path.to_owned()
    }

    pub fn active(&self) -> Option<Value> {
        serde_json::from_str(self.active).ok()
    }

    pub fn standby(&self) -> Option<Value> {
        serde_json::from_str(self.standby).ok()
    }

    /// Returns spec and annotations without the field, and without the annotation of `kubectl`.
    pub fn without_field(&self, spec: &Value, annotations: &Value) -> Value {
        let mut object = serde_json::json!({"spec": spec, "metadata": {"annotations": annotations}});
        let (parent, name) = self.path.rsplit_once('/').unwrap();
        if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
            fields.remove(&name.replace("~1", "/"));
        }
        if object["metadata"]["annotations"].is_null() {
            object["metadata"]["annotations"] = serde_json::json!({});
        }
        object
    }
}

pub const FLINK: &str = "apiVersion: flink.apache.org/v1beta1\nkind: FlinkDeployment\nmetadata: {name: it}\n\
                         spec: {job: {jarURI: local:///app.jar}}\n";

/// Returns a policy that sets `suspend` of Kustomizations to false on every write.
pub fn resetting_policy(group: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {{name: never-suspended}}\n\
         spec:\n  failurePolicy: Fail\n  reinvocationPolicy: Never\n  matchConstraints:\n    resourceRules:\n    \
         - {{apiGroups: [{group}], apiVersions: [\"*\"], operations: [UPDATE], resources: [kustomizations]}}\n  \
         mutations:\n  - patchType: ApplyConfiguration\n    \
         applyConfiguration: {{expression: 'Object{{spec: Object.spec{{suspend: false}}}}'}}\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\n\
         metadata: {{name: never-suspended}}\nspec: {{policyName: never-suspended}}\n"
    )
}
