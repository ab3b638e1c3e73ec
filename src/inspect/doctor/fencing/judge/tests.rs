use serde_json::{Value, json};

use super::*;

const IMAGE: &str = "redlock:1";

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn set(component: &str, image: &str) -> DaemonSet {
    object(json!({
        "metadata": {"name": component, "namespace": "redlock", "labels": {"app.kubernetes.io/component": component}},
        "spec": {"selector": {}, "template": {"spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": image}],
        }}},
        "status": {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0},
    }))
}

fn pod(component: &str, node: &str, ready: &str) -> Pod {
    object(json!({
        "metadata": {"name": format!("{component}-{node}"), "namespace": "redlock",
                     "labels": {"app.kubernetes.io/component": component}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": IMAGE}]},
        "status": {"conditions": [{"type": "Ready", "status": ready, "message": "containers with unready status: [c]"}]},
    }))
}

fn node(name: &str, os: &str, ready: &str) -> Node {
    object(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
}

/// One node without a problem.
fn good() -> Facts {
    let driver = json!({
        "metadata": {"name": DRIVER_NAME},
        "spec": {"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]},
    });
    let metrics = Metrics {
        cgroup2: Some(true),
        guardian_up: Some(true),
        degraded: Some(false),
    };
    Facts {
        driver: Ok(Some(object(driver))),
        sets: Ok(vec![set(AGENT, IMAGE), set(GUARDIAN, IMAGE)]),
        pods: Ok(vec![
            pod("operator", "n1", "True"),
            pod(AGENT, "n1", "True"),
            pod(GUARDIAN, "n1", "True"),
        ]),
        nodes: Ok(vec![node("n1", "linux", "True"), node("w1", "windows", "True")]),
        registered: Ok(vec!["n1".to_owned()]),
        agents: [("n1".to_owned(), Ok(metrics))].into(),
    }
}

/// Returns name, level and text of each check that is not good.
fn noted(facts: &Facts) -> Vec<(String, Level, String)> {
    let reports = of(facts);
    let checks = reports.iter().flat_map(|report| &report.checks);
    let noted = checks.filter(|check| check.level != Level::Good);
    noted
        .map(|check| {
            let hint = check.hint.clone().unwrap_or_default();
            assert!(!hint.is_empty(), "{check:?} has no remedy");
            (check.name.to_owned(), check.level, check.found.clone())
        })
        .collect()
}

fn bad(change: impl FnOnce(&mut Facts)) -> Vec<(String, Level, String)> {
    let mut facts = good();
    change(&mut facts);
    noted(&facts)
}

fn is(found: &[(String, Level, String)], wanted: &[(&str, Level, &str)]) {
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for ((name, level, text), (wanted, of, part)) in found.iter().zip(wanted) {
        assert_eq!((&**name, level), (*wanted, of), "{found:?}");
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_cluster_without_a_problem_is_shown_by_one_subject() {
    let reports = of(&good());
    assert_eq!(noted(&good()), []);
    assert_eq!(
        reports.len(),
        1,
        "a good node, and one of another system, have no line"
    );
    let text: Vec<String> = reports[0]
        .checks
        .iter()
        .map(|check| check.found.clone())
        .collect();
    assert!(text.contains(&"1 of 1 are guarded".to_owned()), "{text:?}");
    assert!(
        text.contains(&"DaemonSet redlock/node-agent: 1 of 1 pods are ready".to_owned()),
        "{text:?}"
    );
}

#[test]
fn a_missing_part_of_the_cluster_is_named() {
    let none = bad(|facts| {
        (facts.driver, facts.sets) = (Ok(None), Ok(Vec::new()));
        facts.nodes = Ok(Vec::new());
    });
    is(
        &none,
        &[
            ("driver", Level::Bad, "no CSIDriver object"),
            ("node-agent", Level::Bad, "component=node-agent"),
            ("node-guardian", Level::Bad, "component=node-guardian"),
            ("nodes", Level::Warning, "no node"),
        ],
    );
    let odd =
        json!({"metadata": {}, "spec": {"podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"]}});
    is(
        &bad(|facts| facts.driver = Ok(Some(object(odd)))),
        &[(
            "driver",
            Level::Bad,
            "podInfoOnMount is not true, attachRequired is not false, volumeLifecycleModes has no Ephemeral",
        )],
    );
    is(
        &bad(|facts| facts.sets = Ok(vec![set(AGENT, "redlock:2"), set(GUARDIAN, IMAGE)])),
        &[(
            "version",
            Level::Bad,
            "the operator has redlock:1, and the nodes redlock:1, redlock:2",
        )],
    );
    is(
        &bad(|facts| facts.sets.as_mut().unwrap().push(set(AGENT, IMAGE))),
        &[("node-agent", Level::Bad, "one of several")],
    );
    is(
        &bad(|facts| {
            facts
                .pods
                .as_mut()
                .unwrap()
                .retain(|pod| pod.name_any() != "operator-n1")
        }),
        &[("version", Level::Warning, "no pod of the operator")],
    );
}

#[test]
fn a_missing_part_of_a_node_is_named() {
    let count = ("nodes", Level::Bad, "0 of 1 are guarded");
    is(
        &bad(|facts| {
            facts
                .pods
                .as_mut()
                .unwrap()
                .retain(|pod| pod.name_any() != "node-guardian-n1")
        }),
        &[count, ("node-guardian", Level::Bad, "no pod on this node")],
    );
    let unready = bad(|facts| {
        facts.pods = Ok(vec![
            pod("operator", "n1", "True"),
            pod(AGENT, "n1", "False"),
            pod(GUARDIAN, "n1", "True"),
        ]);
    });
    is(
        &unready,
        &[
            count,
            (
                "node-agent",
                Level::Bad,
                "not ready: containers with unready status",
            ),
        ],
    );
    // During an update a node has two pods.
    assert_eq!(
        bad(|facts| facts.pods.as_mut().unwrap().insert(1, pod(AGENT, "n1", "False"))),
        []
    );
    is(
        &bad(|facts| facts.registered = Ok(Vec::new())),
        &[count, ("registered", Level::Bad, "no such driver")],
    );
    let metrics = |cgroup2, guardian_up, degraded| {
        let metrics = Metrics {
            cgroup2: Some(cgroup2),
            guardian_up: Some(guardian_up),
            degraded: Some(degraded),
        };
        move |facts: &mut Facts| drop(facts.agents.insert("n1".to_owned(), Ok(metrics)))
    };
    is(
        &bad(metrics(false, true, false)),
        &[count, ("cgroup v2", Level::Bad, "cgroup v1")],
    );
    is(
        &bad(metrics(true, false, false)),
        &[count, ("guardian", Level::Bad, "no report")],
    );
    is(
        &bad(metrics(true, true, true)),
        &[
            ("nodes", Level::Warning, "0 of 1 are guarded"),
            ("guardian", Level::Warning, "no real-time scheduling"),
        ],
    );
    let away = bad(|facts| facts.nodes.as_mut().unwrap().push(node("n2", "linux", "Unknown")));
    is(
        &away,
        &[
            ("nodes", Level::Warning, "1 of 2"),
            ("ready", Level::Warning, "not ready"),
        ],
    );
}

#[test]
fn an_unreadable_part_is_unknown_and_not_bad() {
    let no = || "not allowed".to_owned();
    let found = noted(&Facts {
        driver: Err(no()),
        sets: Err(no()),
        pods: Err(no()),
        nodes: Err(no()),
        registered: Err(no()),
        agents: [("n1".to_owned(), Err(no()))].into(),
    });
    let names: Vec<&str> = found.iter().map(|(name, ..)| &**name).collect();
    assert_eq!(
        names,
        [
            "driver",
            "node-agent",
            "node-guardian",
            "version",
            "nodes",
            "metrics"
        ]
    );
    for (name, level, text) in &found {
        assert_eq!(*level, Level::Warning, "{name}");
        assert!(
            text.starts_with("not checked: ") && text.contains("not allowed"),
            "{text}"
        );
    }
    let no_rest = bad(|facts| {
        facts.registered = Err(no());
        facts.agents.insert("n1".to_owned(), Err(no()));
    });
    is(
        &no_rest,
        &[
            ("nodes", Level::Warning, "0 of 1"),
            (
                "metrics",
                Level::Warning,
                "1 of 1 node agents cannot be read: not allowed",
            ),
            ("registered", Level::Warning, "not allowed"),
        ],
    );
}
