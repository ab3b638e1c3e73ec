//! Tests the settings that every pod of the chart has, of the operator, hooks, tests, masters and nodes.

use serde_json::{Value, json};

use crate::render::{pods, render, try_render_values};

/// Pods of node fencing run on every node, as root, and outside a sandbox.
fn is_of_a_node(component: &str) -> bool {
    component.starts_with("node-")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns every pod of the chart with these values.
fn every_pod(mut values: Value) -> Vec<(String, Value)> {
    values["quickstart"]["enabled"] = json!(true);
    values["fencing"]["enabled"] = json!(true);
    let pods = pods(&try_render_values(&values).unwrap());
    let mut components: Vec<&str> = pods.iter().map(|(component, _)| component.as_str()).collect();
    components.sort_unstable();
    let all = [
        "drain",
        "drain",
        "node-agent",
        "node-guardian",
        "operator",
        "quickstart-master",
        "test",
    ];
    assert_eq!(components, all);
    pods
}

#[test]
fn every_pod_has_the_fields_of_the_values() {
    let everywhere = json!({
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["m0"]}],
    });
    let off_nodes = json!({
        "nodeSelector": {"disk": "ssd"},
        "priorityClassName": "high",
        "runtimeClassName": "crun",
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    });
    let mut values = json!({});
    for of in [&everywhere, &off_nodes] {
        for (name, value) in of.as_object().unwrap() {
            values[name.as_str()] = value.clone();
        }
    }
    for (component, pod) in every_pod(values) {
        for (name, value) in everywhere.as_object().unwrap() {
            assert_eq!(&pod["spec"][name.as_str()], value, "{component}: {name}");
        }
        for (name, value) in off_nodes.as_object().unwrap() {
            let found = &pod["spec"][name.as_str()];
            assert_eq!(found == value, !is_of_a_node(&component), "{component}: {name}");
        }
    }
}

/// The terms between pods are of the replicas: a hook without a free node would never start.
#[test]
fn only_replicas_are_spread() {
    let values = json!({
        "affinity": {"nodeAffinity": {}, "podAntiAffinity": {"x": []}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": "node", "labelSelector": {"matchLabels": {"a": "b"}}},
        ],
    });
    for (component, pod) in every_pod(values) {
        let is_replica = component == "operator";
        let spec = &pod["spec"];
        assert_eq!(
            spec["affinity"]["podAntiAffinity"].is_object(),
            is_replica,
            "{component}"
        );
        let selected = |index: usize, label: &str| {
            let constraint = &spec["topologySpreadConstraints"][index];
            constraint["labelSelector"]["matchLabels"][label].clone()
        };
        let operator = selected(0, "app.kubernetes.io/component");
        assert_eq!(operator == "operator", is_replica, "{component}");
        assert_eq!(selected(1, "a") == "b", is_replica, "{component}");
        let replaced = selected(1, "app.kubernetes.io/component").is_null();
        assert!(replaced || !is_replica, "{component}");
    }
}

/// A label or an annotation may ask for the sidecar of a mesh, which never ends.
#[test]
fn labels_and_annotations_of_pods_are_of_the_operator_and_hooks_have_their_own() {
    let values = json!({
        "commonLabels": {"cost": "a", "app.kubernetes.io/component": "other"},
        "podLabels": {"team": "a", "cost": "", "app.kubernetes.io/instance": "other"},
        "podAnnotations": {"inject": "true"},
        "drain": {
            "podLabels": {"team": "b", "app.kubernetes.io/component": "other"},
            "podAnnotations": {"inject": "false"},
        },
    });
    for (component, pod) in every_pod(values) {
        let (team, inject, cost) = match component.as_str() {
            "operator" => (json!("a"), json!("true"), ""),
            "drain" | "test" => (json!("b"), json!("false"), "a"),
            _ => (Value::Null, Value::Null, "a"),
        };
        let metadata = &pod["metadata"];
        assert_eq!(metadata["labels"]["team"], team, "{component}");
        assert_eq!(metadata["annotations"]["inject"], inject, "{component}");
        assert_eq!(metadata["labels"]["cost"], cost, "{component}");
        assert_eq!(metadata["labels"]["app.kubernetes.io/instance"], "redlock");
    }
}

#[test]
fn every_object_has_the_common_labels_and_labels_of_its_own_win() {
    let objects = render(&[
        "commonLabels.release=common",
        "commonLabels.app\\.kubernetes\\.io/part-of=platform",
        "commonLabels.app\\.kubernetes\\.io/name=other",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.release=prometheus",
        "prometheusRule.labels.app\\.kubernetes\\.io/name=rules",
        "prometheusRule.labels.app\\.kubernetes\\.io/component=",
    ]);
    for object in objects {
        let labels = &object["metadata"]["labels"];
        let is_rule = object["kind"] == "PrometheusRule";
        let (release, name) = if is_rule {
            ("prometheus", "rules")
        } else {
            ("common", "redlock-operator")
        };
        assert_eq!(labels["release"], release, "{object}");
        assert_eq!(labels["app.kubernetes.io/part-of"], "platform");
        assert_eq!(labels["app.kubernetes.io/name"], name, "{object}");
        assert_eq!(labels["app.kubernetes.io/component"] == "", is_rule, "{object}");
    }
}

/// Proxies and certificate authorities are needed where the program connects to the API server or to masters. The node agent has
/// names of its own, with which those of the values could collide. The first hook connects to nothing.
#[test]
fn variables_and_volumes_are_there_where_the_program_connects() {
    let values = json!({
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "extraArgs": ["--an-argument"],
    });
    for (component, pod) in every_pod(values) {
        let container = &pod["spec"]["containers"][0];
        let connects =
            ["operator", "drain", "test"].contains(&component.as_str()) && container["name"] != "can-start";
        for (of, name) in [
            (&container["env"], "TZ"),
            (&container["volumeMounts"], "more"),
            (&pod["spec"]["volumes"], "more"),
        ] {
            let found = list(of).iter().any(|item| item["name"] == name);
            assert_eq!(found, connects, "{component}: {name}");
        }
        let argument = list(&container["args"]).contains(&json!("--an-argument"));
        assert_eq!(argument, component == "operator", "{component}");
    }
}

/// A cluster such as OpenShift assigns users and groups, and refuses others.
#[test]
fn no_pod_has_a_fixed_user_unless_its_image_has_none() {
    let fixed = |pod: &Value| {
        let context = &pod["spec"]["securityContext"];
        ["runAsUser", "runAsGroup", "fsGroup"]
            .into_iter()
            .any(|name| !context[name].is_null())
    };
    for (component, pod) in every_pod(json!({})) {
        let expected = component == "quickstart-master" || is_of_a_node(&component);
        assert_eq!(fixed(&pod), expected, "{component}");
    }
    for (component, pod) in every_pod(json!({"quickstart": {"podSecurityContext": null}})) {
        assert_eq!(fixed(&pod), is_of_a_node(&component), "{component}");
    }
}

#[test]
fn every_pod_but_those_of_nodes_is_restricted_whatever_is_added() {
    const VOLUMES: [&str; 5] = [
        "configMap",
        "emptyDir",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let added = json!({
        "podSecurityContext": {"runAsUser": 7, "supplementalGroups": [5]},
        "securityContext": {"readOnlyRootFilesystem": false},
    });
    for values in [
        json!({}),
        json!({"podSecurityContext": null, "securityContext": null}),
        json!({
            "podSecurityContext": {"runAsNonRoot": null, "seccompProfile": {"type": null}},
            "securityContext": {"allowPrivilegeEscalation": null, "capabilities": null},
            "quickstart": {"podSecurityContext": {"runAsNonRoot": null, "seccompProfile": null}},
        }),
        added.clone(),
    ] {
        let adds = values == added;
        let pods = every_pod(values).into_iter();
        for (component, pod) in pods.filter(|(component, _)| !is_of_a_node(component)) {
            let spec = &pod["spec"];
            let context = &spec["securityContext"];
            assert_eq!(context["runAsNonRoot"], true, "{component}");
            assert_ne!(context["runAsUser"], 0, "{component}");
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{component}");
            for host in ["hostPID", "hostIPC", "hostNetwork"] {
                assert!(spec[host].is_null(), "{component}: {host}");
            }
            for volume in list(&spec["volumes"]) {
                let kinds = volume.as_object().unwrap().keys();
                let mut kinds = kinds.filter(|kind| *kind != "name");
                assert!(kinds.all(|kind| VOLUMES.contains(&kind.as_str())), "{volume}");
            }
            for container in list(&spec["containers"]) {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{component}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{component}");
                assert_eq!(context["readOnlyRootFilesystem"], !adds, "{component}");
            }
            assert_eq!(!context["supplementalGroups"].is_null(), adds, "{component}");
        }
    }
}
