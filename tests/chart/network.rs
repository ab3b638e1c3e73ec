//! Tests the NetworkPolicies: each pod of the release has one, and each connection that a pod needs is admitted.

use serde_json::{Map, Value, json};

use crate::render::{of_kind, render, render_file, values_files};

const EGRESS: &str = "networkPolicy.restrictEgress=true";

/// Returns the policy of this name.
fn policy<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let all = of_kind(objects, "NetworkPolicy");
    let found = all.iter().find(|policy| policy["metadata"]["name"] == name);
    &found.unwrap_or_else(|| panic!("{name} in {all:?}"))["spec"]
}

/// Returns the labels of every pod of the release, hooks included.
fn pods(objects: &[Value]) -> Vec<Map<String, Value>> {
    let labels = |of: &Value| of["metadata"]["labels"].as_object().cloned();
    let of = objects.iter().map(|object| match object["kind"].as_str() {
        Some("Pod") => labels(object),
        _ => labels(&object["spec"]["template"]),
    });
    of.flatten().collect()
}

/// Reports whether the policy selects a pod with these labels.
fn selects(policy: &Value, labels: &Map<String, Value>) -> bool {
    let selector = &policy["spec"]["podSelector"];
    let equal = selector["matchLabels"].as_object().unwrap().iter();
    let within = selector["matchExpressions"].as_array().into_iter().flatten();
    equal
        .into_iter()
        .all(|(name, value)| labels.get(name) == Some(value))
        && within.into_iter().all(|one| {
            assert_eq!(one["operator"], "In");
            let value = labels.get(one["key"].as_str().unwrap());
            value.is_some_and(|value| one["values"].as_array().unwrap().contains(value))
        })
}

#[test]
fn each_pod_has_exactly_one_policy() {
    for file in values_files() {
        let objects = render_file(&file);
        let policies = of_kind(&objects, "NetworkPolicy");
        if file.ends_with("namespaces-values.yaml") {
            assert!(policies.is_empty(), "networkPolicy.enabled=false");
            continue;
        }
        let pods = pods(&objects);
        assert!(pods.len() >= 3, "{}: {pods:?}", file.display());
        for labels in pods {
            let of = policies.iter().filter(|policy| selects(policy, &labels));
            assert_eq!(of.count(), 1, "{}: {labels:?}", file.display());
        }
    }
}

/// The pods of a release without values take part in the network as if there were no policy: each port that they serve is open.
#[test]
fn every_served_port_is_open_by_default_and_egress_is_free() {
    let objects = render(&["quickstart.enabled=true", "fencing.enabled=true"]);
    for policy in of_kind(&objects, "NetworkPolicy") {
        let name = &policy["metadata"]["name"];
        if name != "redlock-operator-node-guardian" {
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "{name}");
            assert_eq!(policy["spec"]["egress"], Value::Null, "{name}");
        }
    }
    let operator = policy(&objects, "redlock-operator");
    let http = json!({"ports": [{"port": "http"}]});
    assert_eq!(operator["ingress"][1], http);
    assert_eq!(
        policy(&objects, "redlock-operator-node-agent")["ingress"],
        json!([http])
    );
    let redis = json!([{"ports": [{"port": "redis"}]}]);
    assert_eq!(policy(&objects, "redlock-operator-quickstart")["ingress"], redis);
    assert_eq!(policy(&objects, "redlock-operator-hooks")["ingress"], Value::Null);
}

/// A replica that cannot ask the others stops their workloads when it loses the masters.
#[test]
fn replicas_reach_each_other_under_all_values() {
    for values in [
        &[][..],
        &[EGRESS],
        &["metrics.localOnly=true"],
        &["networkPolicy.metricsFrom[0].podSelector.matchLabels.app=p"],
    ] {
        let objects = render(values);
        let policy = policy(&objects, "redlock-operator");
        let replicas = json!([{"podSelector": policy["podSelector"]}]);
        assert_eq!(policy["ingress"][0], json!({"from": replicas}), "{values:?}");
        if values == [EGRESS] {
            assert_eq!(policy["egress"][1], json!({"to": replicas}));
        }
    }
}

#[test]
fn clients_are_those_of_the_values() {
    let scraper = json!({"podSelector": {"matchLabels": {"app": "p"}}});
    let values = [
        "quickstart.enabled=true",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=p",
        "networkPolicy.mastersFrom[0].podSelector.matchLabels.app=p",
        "networkPolicy.extraIngress[0].ports[0].port=15008",
    ];
    let objects = render(&values);
    let ingress = &policy(&objects, "redlock-operator")["ingress"];
    assert_eq!(
        ingress[1],
        json!({"ports": [{"port": "http"}], "from": [scraper]})
    );
    assert_eq!(ingress[2], json!({"ports": [{"port": 15008}]}));
    let masters = &policy(&objects, "redlock-operator-quickstart")["ingress"][0]["from"];
    let release =
        json!({"app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/instance": "redlock"});
    assert_eq!(
        masters,
        &json!([{"podSelector": {"matchLabels": release}}, scraper])
    );
    // Nothing but the siblings needs the port of the probes.
    let local = render(&["metrics.localOnly=true"]);
    assert_eq!(
        policy(&local, "redlock-operator")["ingress"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn restricted_egress_has_what_each_pod_needs() {
    let ports = |policy: &Value| -> Vec<i64> {
        let ports = policy["egress"][0]["ports"].as_array().unwrap();
        ports.iter().map(|port| port["port"].as_i64().unwrap()).collect()
    };
    let values = [
        EGRESS,
        "networkPolicy.masterPorts={7001,443}",
        "fencing.enabled=true",
    ];
    let objects = render(&values);
    for name in [
        "redlock-operator",
        "redlock-operator-hooks",
        "redlock-operator-node-agent",
    ] {
        assert_eq!(ports(policy(&objects, name)), [53, 53, 443, 6443, 7001], "{name}");
    }
    let quickstart = render(&[&values[..], &["quickstart.enabled=true"]].concat());
    assert_eq!(
        ports(policy(&quickstart, "redlock-operator")),
        [53, 53, 443, 6443, 7001, 6379]
    );
    let masters = policy(&quickstart, "redlock-operator-quickstart");
    assert_eq!(masters["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(masters["egress"], Value::Null, "a master connects to no one");
}
