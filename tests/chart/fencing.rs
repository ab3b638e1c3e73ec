//! Tests the objects of node fencing: two DaemonSets, the driver, and their rights.

use serde_json::{Value, json};

use crate::notes::{notes, warns};
use crate::render::{NAMESPACE, of_kind, one, render, try_render};

const ENABLED: &str = "fencing.enabled=true";

fn daemon_set<'a>(objects: &'a [Value], component: &str) -> &'a Value {
    let all = of_kind(objects, "DaemonSet").into_iter();
    let mut found =
        all.filter(|object| object["metadata"]["labels"]["app.kubernetes.io/component"] == component);
    found.next().unwrap_or_else(|| panic!("no DaemonSet {component}"))
}

fn container(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]["containers"][0]
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn variable(daemon_set: &Value, name: &str) -> Value {
    let found = list(&container(daemon_set)["env"])
        .iter()
        .find(|variable| variable["name"] == name);
    found.map_or(Value::Null, |variable| variable["value"].clone())
}

#[test]
fn no_node_is_touched_unasked() {
    let objects = render(&[]);
    for kind in ["DaemonSet", "CSIDriver"] {
        assert!(of_kind(&objects, kind).is_empty(), "{kind}");
    }
    assert!(!serde_json::to_string(&objects).unwrap().contains("hostPath"));
}

/// The kubelet passes the pod, publishes without an attachment, and does not change the owner of files.
#[test]
fn the_driver_is_inline_and_gets_the_pod() {
    let objects = render(&[ENABLED]);
    let driver = one(&objects, "CSIDriver");
    assert_eq!(driver["metadata"]["name"], redlock_csi::DRIVER_NAME);
    assert_eq!(
        driver["spec"],
        json!({
            "attachRequired": false,
            "podInfoOnMount": true,
            "volumeLifecycleModes": ["Ephemeral"],
            "fsGroupPolicy": "None",
            "requiresRepublish": false,
        })
    );
}

#[test]
fn both_run_on_every_node_throughout_an_update() {
    let objects = render(&[ENABLED, "podLabels.team=a", "nodeSelector.disk=ssd"]);
    for component in ["node-agent", "node-guardian"] {
        let set = daemon_set(&objects, component);
        assert_eq!(
            set["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        );
        // Frozen: the selector of a DaemonSet can never change.
        let labels = json!({
            "app.kubernetes.io/name": "redlock-operator",
            "app.kubernetes.io/instance": "redlock",
            "app.kubernetes.io/component": component,
        });
        assert_eq!(set["spec"]["selector"], json!({"matchLabels": labels}));
        assert_eq!(set["spec"]["template"]["metadata"]["labels"], labels);
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(pod["priorityClassName"], "system-node-critical");
        assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    }
}

#[test]
fn both_have_root_and_two_capabilities_and_no_more() {
    let objects = render(&[ENABLED]);
    for component in ["node-agent", "node-guardian"] {
        let set = daemon_set(&objects, component);
        let pod = &set["spec"]["template"]["spec"];
        for host in ["hostPID", "hostIPC", "hostNetwork"] {
            assert!(pod[host].is_null(), "{component}: {host}");
        }
        assert_eq!(pod["securityContext"]["runAsUser"], 0);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(
            container(set)["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"], "add": ["SYS_NICE", "IPC_LOCK"]},
            }),
            "{component}"
        );
    }
    let guardian = daemon_set(&objects, "node-guardian");
    let resources = &container(guardian)["resources"];
    assert!(
        resources["limits"].is_null(),
        "an OOM kill ends the last guard: {resources}"
    );
    let pod = &guardian["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let paths: Vec<&Value> = list(&pod["volumes"])
        .iter()
        .map(|volume| &volume["hostPath"]["path"])
        .collect();
    assert_eq!(paths, ["/sys/fs/cgroup", "/run/redlock", "/var/lib/kubelet/pods"]);
    let mounts = list(&container(guardian)["volumeMounts"]);
    let pods = mounts.iter().find(|mount| mount["name"] == "pods").unwrap();
    assert_eq!(pods["readOnly"], true);
}

#[test]
fn agent_and_operator_have_the_same_runtime_classes() {
    const NAME: &str = "REDLOCK_FENCING_RUNTIME_CLASSES";
    let objects = render(&[ENABLED, "fencing.runtimeClasses={nvidia,crun}"]);
    let classes = json!("nvidia,crun");
    assert_eq!(variable(daemon_set(&objects, "node-agent"), NAME), classes);
    assert_eq!(variable(one(&objects, "Deployment"), NAME), classes);
    let objects = render(&[ENABLED]);
    assert_eq!(variable(one(&objects, "Deployment"), NAME), Value::Null);
}

#[test]
fn nodes_that_cannot_fence_are_excluded_by_their_labels() {
    let objects = render(&[ENABLED, "fencing.nodeSelector.fenced=yes"]);
    for component in ["node-agent", "node-guardian"] {
        let selector = &daemon_set(&objects, component)["spec"]["template"]["spec"]["nodeSelector"];
        let wanted = json!({"kubernetes.io/os": "linux", "fenced": "yes"});
        assert_eq!(selector, &wanted, "{component}");
    }
}

/// At a shutdown of the node, both freeze until the last permit has ended.
#[test]
fn both_may_end_after_the_longest_permit() {
    let objects = render(&[ENABLED]);
    // The longest lease that is the default, and its reservation.
    const LONGEST_PERMIT: i64 = 60 + 5;
    for component in ["node-agent", "node-guardian"] {
        let pod = &daemon_set(&objects, component)["spec"]["template"]["spec"];
        let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap();
        assert!(grace >= LONGEST_PERMIT + 10, "{component}: {grace}");
    }
}

/// The grace period of the pod is for a shutdown of the node.
#[test]
fn an_agent_that_hangs_is_restarted_after_ten_seconds() {
    let objects = render(&[ENABLED]);
    let probe = &container(daemon_set(&objects, "node-agent"))["livenessProbe"];
    assert_eq!(probe["terminationGracePeriodSeconds"], 10, "{probe}");
}

#[test]
fn the_directory_of_the_kubelet_has_the_same_path_in_the_pod() {
    let objects = render(&[ENABLED, "fencing.kubeletDir=/data/kubelet"]);
    let agent = daemon_set(&objects, "node-agent");
    let arguments = &container(agent)["args"];
    assert_eq!(
        arguments,
        &json!([
            "node-agent",
            "--state-dir",
            "/run/redlock",
            "--kubelet-dir",
            "/data/kubelet",
            "--node-name",
            "$(NODE_NAME)"
        ])
    );
    let volumes = list(&agent["spec"]["template"]["spec"]["volumes"]);
    let mut propagated = Vec::new();
    for mount in list(&container(agent)["volumeMounts"]) {
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == mount["name"])
            .unwrap();
        assert_eq!(mount["mountPath"], volume["hostPath"]["path"], "{mount}");
        if !mount["mountPropagation"].is_null() {
            propagated.push((mount["mountPath"].clone(), mount["mountPropagation"].clone()));
        }
    }
    // Bidirectional would need a privileged container.
    assert_eq!(
        propagated,
        [(json!("/data/kubelet/pods"), json!("HostToContainer"))]
    );
    let driver = redlock_csi::Options::new("node-1", "/data/kubelet");
    for socket in [&driver.csi_socket, &driver.registration_socket] {
        let directory = socket.parent().unwrap().to_str().unwrap();
        let writable = list(&container(agent)["volumeMounts"])
            .iter()
            .find(|mount| mount["mountPath"] == directory);
        assert!(
            writable.is_some_and(|mount| mount["readOnly"].is_null()),
            "{directory}"
        );
    }
}

#[test]
fn the_agent_reads_locks_and_pods_and_writes_events_only() {
    for (values, namespaces) in [
        (&[ENABLED][..], vec![Value::Null]),
        (
            &[ENABLED, "watchNamespaces={billing,shop}"],
            vec![json!("billing"), json!("shop")],
        ),
    ] {
        let objects = render(values);
        let agent = daemon_set(&objects, "node-agent");
        let account = &agent["spec"]["template"]["spec"]["serviceAccountName"];
        assert!(
            of_kind(&objects, "ServiceAccount")
                .iter()
                .any(|object| &object["metadata"]["name"] == account)
        );
        let bindings = ["ClusterRoleBinding", "RoleBinding"]
            .map(|kind| of_kind(&objects, kind))
            .concat();
        let bound = bindings
            .into_iter()
            .filter(|binding| &binding["subjects"][0]["name"] == account);
        let mut locks_in = Vec::new();
        for binding in bound {
            assert_eq!(binding["subjects"][0]["namespace"], NAMESPACE);
            let kind = binding["roleRef"]["kind"].as_str().unwrap();
            let role = of_kind(&objects, kind).into_iter().find(|role| {
                role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
            });
            for rule in list(&role.unwrap()["rules"]) {
                let resource = rule["resources"][0].as_str().unwrap();
                let verbs: Vec<&str> = list(&rule["verbs"]).iter().filter_map(Value::as_str).collect();
                match resource {
                    "leaderlocks" | "redisquorums" => assert_eq!(verbs, ["get", "list", "watch"]),
                    "pods" => assert_eq!(verbs, ["get"]),
                    "events" => assert_eq!(verbs, ["create", "patch"]),
                    "namespaces" => assert_eq!(
                        (verbs, &rule["resourceNames"]),
                        (vec!["get"], &json!(["kube-system"]))
                    ),
                    other => panic!("{other}"),
                }
                if resource == "leaderlocks" {
                    locks_in.push(binding["metadata"]["namespace"].clone());
                }
            }
        }
        assert_eq!(locks_in, namespaces);
    }
    let without = render(&[ENABLED, "rbac.create=false"]);
    for kind in ["Role", "ClusterRole"] {
        assert!(of_kind(&without, kind).is_empty(), "{kind}");
    }
}

#[test]
fn the_agent_has_a_redis_user_of_its_own() {
    let quorum = [
        ENABLED,
        "quorums.default.masters[0].name=m0",
        "quorums.default.auth.secretRef.name=masters",
    ];
    let set: Vec<String> = quorum.iter().map(|value| format!("--set={value}")).collect();
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let refused = try_render(&set).map(|_| ()).unwrap_err();
    assert!(
        refused.contains("fencing.redis.secretName is empty, and quorums.default has auth"),
        "{refused}"
    );
    let objects = render(
        &[
            &quorum[..],
            &["fencing.redis.secretName=reader", "fencing.redis.ca=true"],
        ]
        .concat(),
    );
    let agent = daemon_set(&objects, "node-agent");
    assert_eq!(
        variable(agent, "REDLOCK_PASSWORD_FILE"),
        "/etc/redlock/redis/password"
    );
    assert_eq!(variable(agent, "REDLOCK_TLS_CA"), "/etc/redlock/redis/ca.crt");
    assert_eq!(variable(agent, "REDLOCK_TLS_KEY"), Value::Null);
    let text = agent.to_string();
    assert!(text.contains("reader") && !text.contains("masters"), "{text}");
    let guardian = daemon_set(&objects, "node-guardian").to_string();
    assert!(!guardian.contains("reader"), "{guardian}");
    // The masters of the quickstart have one user, with one password.
    let trial = render(&[ENABLED, "quickstart.enabled=true"]);
    assert!(
        daemon_set(&trial, "node-agent")
            .to_string()
            .contains("redlock-operator-quickstart")
    );
}

#[test]
fn an_uninstall_waits_for_the_pods_that_mount_the_volume() {
    let drain = |values: &[&str]| {
        let objects = render(values);
        let hook = objects
            .iter()
            .find(|object| object["kind"] == "Job" && object["metadata"]["name"] == "redlock-operator-drain");
        let arguments = hook.unwrap()["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        let role = objects.iter().find(|object| {
            object["kind"] == "ClusterRole" && object["metadata"]["name"] == "redlock:redlock-operator-drain"
        });
        (
            list(&arguments).contains(&json!("--fencing")),
            role.unwrap().to_string().contains(r#""pods""#),
        )
    };
    assert_eq!(drain(&[ENABLED]), (true, true));
    assert_eq!(
        drain(&[]),
        (false, false),
        "the rights are those that the hook uses"
    );
}

#[test]
fn the_notes_name_what_the_nodes_and_the_namespace_need() {
    let text = notes(&[ENABLED]);
    assert!(
        text.contains("pod-security.kubernetes.io/enforce=privileged"),
        "{text}"
    );
    assert!(!notes(&[]).contains("pod-security"));
    assert!(warns("fencing.redis.secretName is empty", &[ENABLED]));
}

#[test]
fn metrics_of_the_nodes_are_scraped_where_those_of_the_operator_are() {
    for monitor in ["serviceMonitor", "podMonitor"] {
        let enabled = format!("metrics.{monitor}.enabled=true");
        let objects = render(&[ENABLED, &enabled]);
        let monitors = of_kind(&objects, "PodMonitor");
        let ours = monitors
            .iter()
            .find(|object| object["metadata"]["name"] == "redlock-operator-node-agent");
        let selector = &ours.unwrap()["spec"]["selector"]["matchLabels"];
        let labels = &daemon_set(&objects, "node-agent")["spec"]["template"]["metadata"]["labels"];
        assert_eq!(selector, labels, "{monitor}");
    }
}
