//! Tests the objects that are rendered only on request.

use serde_json::{Value, json};

use crate::render::{NAMESPACE, of_kind, one, render, try_render};

const MASTER: &str = "quorums.default.masters[0].name=m0";

#[test]
fn nothing_optional_is_there_unasked() {
    let objects = render(&[]);
    for kind in [
        "ServiceMonitor",
        "PodMonitor",
        "ConfigMap",
        "StatefulSet",
        "Secret",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ] {
        assert!(of_kind(&objects, kind).is_empty(), "{kind}");
    }
    assert!(
        !objects.iter().any(|object| object["kind"] == "Pod"),
        "a test of no quorum"
    );
    let without = render(&[
        "podDisruptionBudget.enabled=false",
        "serviceAccount.create=false",
        "rbac.create=false",
        "networkPolicy.enabled=false",
    ]);
    for kind in [
        "PodDisruptionBudget",
        "ServiceAccount",
        "Role",
        "ClusterRole",
        "NetworkPolicy",
    ] {
        assert!(of_kind(&without, kind).is_empty(), "{kind}");
    }
}

#[test]
fn monitors_select_the_services_that_they_scrape() {
    let objects = render(&[
        "metrics.serviceMonitor.enabled=true",
        "metrics.podMonitor.enabled=true",
    ]);
    let services = of_kind(&objects, "Service");
    let labels = |of: &Value| of["metadata"]["labels"].as_object().unwrap().clone();
    for (kind, endpoints, scraped) in [
        ("ServiceMonitor", "endpoints", labels(services[0])),
        (
            "PodMonitor",
            "podMetricsEndpoints",
            labels(&one(&objects, "Deployment")["spec"]["template"]),
        ),
    ] {
        let monitor = &one(&objects, kind)["spec"];
        for (name, value) in monitor["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(scraped.get(name), Some(value), "{kind}");
        }
        assert_eq!(monitor[endpoints][0]["port"], "http");
        assert_eq!(monitor[endpoints][0]["path"], "/metrics");
    }
}

fn variable(objects: &[Value], name: &str) -> Value {
    let containers = &one(objects, "Deployment")["spec"]["template"]["spec"]["containers"];
    let all = containers[0]["env"].as_array().unwrap();
    let found = all.iter().find(|variable| variable["name"] == name);
    found.map_or(Value::Null, |variable| variable["value"].clone())
}

#[test]
fn metrics_are_kept_from_the_network_or_need_a_token() {
    let local = render(&["metrics.localOnly=true"]);
    assert_eq!(variable(&local, "REDLOCK_LISTEN_DETAILS"), "127.0.0.1:8081");
    assert_eq!(variable(&local, "REDLOCK_REQUIRE_TOKEN"), Value::Null);
    let monitors = [
        "metrics.requireToken=true",
        "metrics.serviceMonitor.enabled=true",
        "metrics.podMonitor.enabled=true",
    ];
    let guarded = render(&monitors);
    assert_eq!(variable(&guarded, "REDLOCK_REQUIRE_TOKEN"), "true");
    assert_eq!(variable(&guarded, "REDLOCK_LISTEN_DETAILS"), Value::Null);
    let readers = of_kind(&guarded, "ClusterRole").into_iter();
    let readers: Vec<&Value> = readers
        .filter(|role| role["rules"][0]["nonResourceURLs"].is_array())
        .collect();
    assert_eq!(
        readers[0]["rules"],
        json!([{"nonResourceURLs": ["/metrics", "/locks"], "verbs": ["get"]}])
    );
    let endpoint = |objects: &[Value], kind: &str, field: &str| one(objects, kind)["spec"][field][0].clone();
    let service = endpoint(&guarded, "ServiceMonitor", "endpoints");
    assert!(service["bearerTokenFile"].is_string(), "{service}");
    let credentials = ["metrics.credentials.name=scrape", "metrics.credentials.key=token"];
    let named = render(&[&monitors[..], &credentials].concat());
    for (kind, field) in [
        ("ServiceMonitor", "endpoints"),
        ("PodMonitor", "podMetricsEndpoints"),
    ] {
        let endpoint = endpoint(&named, kind, field);
        assert_eq!(
            endpoint["authorization"],
            json!({"credentials": {"name": "scrape", "key": "token"}}),
            "{kind}"
        );
        assert!(endpoint["bearerTokenFile"].is_null(), "{kind}");
    }
}

#[test]
fn authors_are_checked_where_locks_are_followed() {
    let check = "admission.authorCheck.enabled=true";
    let objects = render(&[check]);
    let policy = one(&objects, "ValidatingAdmissionPolicy");
    let binding = one(&objects, "ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    assert_eq!(binding["spec"]["matchResources"], Value::Null);
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let objects = render(&[check, "watchNamespaces={billing,shop}"]);
    let binding = one(&objects, "ValidatingAdmissionPolicyBinding");
    let selector = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(selector["values"], json!(["billing", "shop"]));
}

#[test]
fn agents_get_the_name_of_their_cluster() {
    let objects = render(&[
        "clusterName=eu-1",
        "agents.namespaces={shop}",
        "agents.clusterUID=8f0c-1",
    ]);
    let map = one(&objects, "ConfigMap");
    assert_eq!(map["metadata"]["namespace"], "shop");
    // Agents run on after an uninstall.
    assert_eq!(map["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert_eq!(map["data"], json!({"REDLOCK_CLUSTER": "eu-1/8f0c-1"}));
    let cluster: redlock::lease::ClusterId =
        map["data"]["REDLOCK_CLUSTER"].as_str().unwrap().parse().unwrap();
    assert_eq!((cluster.name(), cluster.uid()), ("eu-1", "8f0c-1"));
}

/// A namespace is Terminating for ever where one policy refuses a deletion by the cluster.
#[test]
fn leases_are_fenced_where_locks_are_followed_and_a_lock_names_them() {
    let fence = "admission.leaseFence.enabled=true";
    let objects = render(&[fence]);
    let policy = one(&objects, "ValidatingAdmissionPolicy");
    // Without the definition of LeaderLocks, Fail would refuse the Leases of every leader election.
    assert_eq!(policy["spec"]["failurePolicy"], "Ignore");
    assert_eq!(policy["spec"]["paramKind"]["kind"], "LeaderLock");
    let release = variable(&objects, "REDLOCK_RELEASE");
    assert_eq!(release, format!("{NAMESPACE}.redlock-operator"));
    let text = policy.to_string();
    assert!(
        text.contains(&format!("endsWith('/{NAMESPACE}.redlock-operator')")),
        "{text}"
    );
    let params = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    let binding = one(&objects, "ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["paramRef"], params);
    assert_eq!(binding["spec"]["matchResources"], Value::Null);
    let objects = render(&[fence, "watchNamespaces={billing}", "fullnameOverride=other"]);
    let binding = one(&objects, "ValidatingAdmissionPolicyBinding");
    let selector = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
    assert_eq!(selector[0]["values"], json!(["billing"]));
    assert_eq!(
        variable(&objects, "REDLOCK_RELEASE"),
        format!("{NAMESPACE}.other")
    );
}

#[test]
fn quorums_are_applied_by_the_operator_and_not_by_helm() {
    let objects = render(&[MASTER, "quorums.other.masters[0].name=m0"]);
    assert!(
        of_kind(&objects, "RedisQuorum").is_empty(),
        "Helm does not know the kind on an empty cluster"
    );
    let text = one(&objects, "ConfigMap")["data"]["quorums.yaml"]
        .as_str()
        .unwrap();
    assert_eq!(text.matches("kind: RedisQuorum").count(), 2);
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(
        pod["volumes"][0]["configMap"]["name"],
        one(&objects, "ConfigMap")["metadata"]["name"]
    );
    let mount = &pod["containers"][0]["volumeMounts"][0];
    assert_eq!(
        mount["subPath"],
        Value::Null,
        "it would never follow the ConfigMap"
    );
    let roles = of_kind(&objects, "ClusterRole");
    let rules = roles.iter().flat_map(|role| role["rules"].as_array().unwrap());
    let creating: Vec<&Value> = rules
        .filter(|rule| rule["verbs"].as_array().unwrap().contains(&"create".into()))
        .filter(|rule| rule["resources"][0] == "redisquorums" && !rule["resourceNames"].is_null())
        .collect();
    assert_eq!(creating[0]["resourceNames"], json!(["default", "other"]));
}

/// Only the hook may scale the operator, and only while the hook runs.
#[test]
fn only_the_hook_ends_the_operator() {
    let objects = render(&[]);
    let hooks: Vec<&Value> = objects
        .iter()
        .filter(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete")
        .collect();
    let job = hooks
        .iter()
        .find(|hook| hook["kind"] == "Job" && hook["metadata"]["name"] == "redlock-operator-drain")
        .unwrap();
    let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    let deployment = format!(
        "--deployment={}",
        one(&objects, "Deployment")["metadata"]["name"].as_str().unwrap()
    );
    assert_eq!(arguments[0], "drain");
    assert_eq!(arguments[1], format!("--namespace={NAMESPACE}"));
    assert_eq!(arguments[2], deployment);
    let rights = |of: &[&Value]| {
        serde_json::to_string(of)
            .unwrap()
            .matches("deployments/scale")
            .count()
    };
    assert_eq!(rights(&hooks), 1);
    let others: Vec<&Value> = objects.iter().filter(|object| !hooks.contains(object)).collect();
    assert_eq!(rights(&others), 0);
    for hook in hooks {
        let policy = hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            .as_str()
            .unwrap();
        assert!(policy.contains("hook-succeeded"), "{} stays", hook["kind"]);
    }
    let without = render(&["drain.enabled=false"]);
    assert!(!serde_json::to_string(&without).unwrap().contains("pre-delete"));
}

/// An unusable image is detected before the uninstall changes anything.
#[test]
fn an_uninstall_begins_with_a_pod_that_does_nothing() {
    let objects = render(&["drain.startSeconds=90", "terminationGracePeriodSeconds=100"]);
    let weight = |hook: &Value| {
        let text = hook["metadata"]["annotations"]["helm.sh/hook-weight"].as_str();
        text.map_or(0, |text| text.parse::<i32>().unwrap())
    };
    let mut hooks: Vec<&Value> = objects
        .iter()
        .filter(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete")
        .collect();
    hooks.sort_by_key(|hook| weight(hook));
    let (first, last) = (hooks[0], hooks[hooks.len() - 1]);
    assert!(weight(hooks[1]) > weight(first), "{hooks:#?}");
    assert_eq!(first["metadata"]["name"], "redlock-operator-can-start");
    assert_eq!(first["spec"]["activeDeadlineSeconds"], 90);
    let pod = &first["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"], json!(["--version"]));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(last["metadata"]["name"], "redlock-operator-drain");
    assert_eq!(
        pod["containers"][0]["image"],
        last["spec"]["template"]["spec"]["containers"][0]["image"]
    );
    // Time for a running operator to stop its workloads.
    assert_eq!(last["spec"]["activeDeadlineSeconds"], 260);
}

#[test]
fn each_quorum_that_a_pod_can_reach_is_tested() {
    let url = "quorums.default.masters[0].url=redis://m0:1";
    let tests = |values: &[&str]| {
        let objects = render(values);
        objects
            .into_iter()
            .filter(|object| object["kind"] == "Pod")
            .collect::<Vec<_>>()
    };
    let all = tests(&[MASTER, url, "quorums.default.keyPrefix=other"]);
    let arguments = &all[0]["spec"]["containers"][0]["args"];
    assert_eq!(
        arguments,
        &json!([
            "doctor",
            "--take-turns",
            "--masters=redis://m0:1",
            "--key-prefix=other"
        ])
    );
    let secret = [
        "quorums.default.auth.secretRef.name=a",
        "quorums.default.auth.secretRef.namespace=elsewhere",
    ];
    assert!(
        tests(&[MASTER, url, secret[0], secret[1]]).is_empty(),
        "a pod cannot read it"
    );
    assert!(tests(&[MASTER, url, "quorums.default.tls.secretRef.name=a"]).is_empty());
}

#[test]
fn a_standby_is_guarded_as_far_as_the_version_of_kubernetes_allows() {
    let guard = "--set=admission.standbyGuard.enabled=true";
    let objects = try_render(&[guard]).unwrap();
    let policy = one(&objects, "ValidatingAdmissionPolicy");
    // Otherwise a missing definition would refuse every write.
    assert_eq!(policy["spec"]["failurePolicy"], "Ignore");
    let by_others = &policy["spec"]["matchConditions"][0]["expression"];
    let operator = format!("'system:serviceaccount:{NAMESPACE}:redlock-operator'");
    assert!(by_others.as_str().unwrap().contains(&operator), "{by_others}");
    let params = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    let binding = one(&objects, "ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["paramRef"], params);
    assert!(of_kind(&objects, "MutatingAdmissionPolicy").is_empty());

    let served = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
    for newer in [served, "--kube-version=1.36.0"] {
        let objects = try_render(&[guard, newer, "--set=watchNamespaces={billing}"]).unwrap();
        let policy = one(&objects, "MutatingAdmissionPolicy");
        assert_eq!(policy["spec"]["failurePolicy"], "Ignore", "{newer}");
        for kind in ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"] {
            let binding = one(&objects, &format!("{kind}Binding"));
            let policy = one(&objects, kind);
            assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
            assert_eq!(binding["spec"]["paramRef"], params, "{kind}");
            let selector = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
            assert_eq!(selector[0]["values"], json!(["billing"]), "{kind}");
        }
    }
    let named = try_render(&[
        guard,
        "--set=serviceAccount.create=false,serviceAccount.name=mine",
    ])
    .unwrap();
    let policy = one(&named, "ValidatingAdmissionPolicy").to_string();
    assert!(policy.contains(&format!("system:serviceaccount:{NAMESPACE}:mine")));
}
