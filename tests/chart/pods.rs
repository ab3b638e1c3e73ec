//! Tests the pods of the operator.

use serde_json::{Value, json};

use crate::common::pages::blocks;
use crate::render::{of_kind, one, render, render_file, values_files};

fn container(objects: &[Value]) -> Value {
    one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
}

fn variable(objects: &[Value], name: &str) -> Value {
    let container = container(objects);
    let all = container["env"].as_array().unwrap();
    let found = all.iter().find(|variable| variable["name"] == name);
    found.map_or(Value::Null, |variable| variable["value"].clone())
}

/// The API server enforces the same standard; this test names the field.
#[test]
fn every_pod_is_restricted() {
    for file in values_files() {
        for object in render_file(&file) {
            let Some(pod) = pod_of(&object) else { continue };
            let name = &object["metadata"]["name"];
            let context = &pod["securityContext"];
            assert_eq!(context["runAsNonRoot"], true, "{name}");
            assert_ne!(context["runAsUser"], 0, "{name}");
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            for container in ["containers", "initContainers"]
                .into_iter()
                .flat_map(|of| list(&pod[of]))
            {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
                assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");
                assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
                assert!(
                    container["resources"]["limits"]["cpu"].is_null(),
                    "{name} would be throttled"
                );
            }
        }
    }
}

fn pod_of(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(&object["spec"]),
        "Deployment" | "StatefulSet" | "Job" => Some(&object["spec"]["template"]["spec"]),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A change of the selector would make upgrades fail: the field is immutable.
#[test]
fn the_selector_is_frozen() {
    let frozen = json!({
        "app.kubernetes.io/name": "redlock-operator",
        "app.kubernetes.io/instance": "redlock",
        "app.kubernetes.io/component": "operator",
    });
    let values = [
        "fullnameOverride=other",
        "podLabels.team=a",
        "podLabels.app\\.kubernetes\\.io/component=b",
    ];
    for objects in [render(&[]), render(&values)] {
        let deployment = one(&objects, "Deployment");
        assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": frozen}));
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (name, value) in frozen.as_object().unwrap() {
            assert_eq!(&labels[name], value);
        }
        let budget = one(&objects, "PodDisruptionBudget");
        assert_eq!(budget["spec"]["selector"]["matchLabels"], frozen);
        let services = of_kind(&objects, "Service");
        assert!(
            services
                .iter()
                .any(|service| service["spec"]["selector"] == frozen)
        );
        assert_eq!(
            variable(&objects, "REDLOCK_POD_SELECTOR"),
            "app.kubernetes.io/component=operator,app.kubernetes.io/instance=redlock,\
             app.kubernetes.io/name=redlock-operator"
        );
    }
}

/// Otherwise each replica of a rollout stops workloads that it could leave to the next one.
#[test]
fn a_replica_is_ready_before_another_one_ends() {
    let objects = render(&["replicas=1"]);
    let spec = &one(&objects, "Deployment")["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"]["rollingUpdate"],
        json!({"maxUnavailable": 0, "maxSurge": 1})
    );
    let grace = &spec["template"]["spec"]["terminationGracePeriodSeconds"];
    assert!(grace.as_u64() >= Some(100), "the longest lease twice: {grace}");
    // `minAvailable` would prevent the drain of a node.
    assert_eq!(one(&objects, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    assert!(one(&objects, "PodDisruptionBudget")["spec"]["minAvailable"].is_null());
}

#[test]
fn replicas_are_spread_softly_and_anything_else_is_taken() {
    let affinity =
        |values: &[&str]| one(&render(values), "Deployment")["spec"]["template"]["spec"]["affinity"].clone();
    let spread = affinity(&[]);
    let terms = list(&spread["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]).to_vec();
    let keys: Vec<&Value> = terms
        .iter()
        .map(|term| &term["podAffinityTerm"]["topologyKey"])
        .collect();
    assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    assert_eq!(
        affinity(&["affinity.nodeAffinity.x=y"]),
        json!({"nodeAffinity": {"x": "y"}})
    );
}

#[test]
fn the_image_is_named_by_digest_else_by_tag() {
    let image = |values: &[&str]| container(&render(values))["image"].clone();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        image(&[]),
        format!("ghcr.io/redlock-operator/redlock-operator:{version}")
    );
    assert_eq!(
        image(&["image.repository=local/redlock", "image.tag=dev"]),
        "local/redlock:dev"
    );
    let digest = format!("sha256:{}", "0a".repeat(32));
    assert_eq!(
        image(&[
            "image.repository=r/x",
            "image.tag=dev",
            &format!("image.digest={digest}")
        ]),
        format!("r/x@{digest}")
    );
}

/// Returns the values of the first installation that a page shows.
fn values_of(page: &str) -> Vec<String> {
    let commands = blocks(page).into_iter().flat_map(|block| block.commands());
    let install = commands
        .into_iter()
        .find(|command| command.starts_with("helm install") && command.contains("image."));
    let install = install.unwrap_or_else(|| panic!("{page} installs no image by name"));
    let words: Vec<&str> = install.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| pair[0] == "--set");
    pairs.map(|pair| pair[1].to_owned()).collect()
}

#[test]
fn every_pod_runs_the_image_that_the_pages_build() {
    let image = format!("redlock-operator:{}", env!("CARGO_PKG_VERSION"));
    for page in ["README.md", "docs/install.md", "docs/image.md"] {
        let values = values_of(page);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let objects = render(&values);
        let templates = objects
            .iter()
            .filter(|object| ["Deployment", "Job"].contains(&object["kind"].as_str().unwrap_or_default()))
            .map(|object| &object["spec"]["template"]["spec"]);
        let tests = objects.iter().filter(|object| object["kind"] == "Pod");
        let pods: Vec<&Value> = templates.chain(tests.map(|pod| &pod["spec"])).collect();
        assert!(pods.len() >= 3, "{pods:?}");
        for container in pods.iter().flat_map(|pod| list(&pod["containers"])) {
            assert_eq!(container["image"], image, "{page}");
            assert_eq!(container["imagePullPolicy"], "Never", "{page}");
        }
    }
}

#[test]
fn the_values_reach_the_operator() {
    let values = [
        "clusterName=eu-1",
        "watchNamespaces={a,b}",
        "listenAddress=[::]",
        "lockMetrics=false",
        // The largest value: Helm would write it with an exponent.
        "apiRequestsPerSecond=100000",
        "extraArgs={--log-format,json}",
        "extraEnv[0].name=TZ",
        "extraEnv[0].value=UTC",
    ];
    let objects = render(&values);
    for (name, value) in [
        ("REDLOCK_CLUSTER", "eu-1"),
        ("REDLOCK_WATCH_NAMESPACES", "a,b"),
        ("REDLOCK_LISTEN", "[::]:8080"),
        ("REDLOCK_LOCK_METRICS", "false"),
        ("REDLOCK_API_REQUESTS_PER_SECOND", "100000"),
        ("REDLOCK_IDENTITY", "$(POD_NAME)"),
        ("TZ", "UTC"),
    ] {
        assert_eq!(variable(&objects, name), value, "{name}");
    }
    assert_eq!(
        container(&objects)["args"],
        json!(["operator", "--log-format", "json"])
    );
    assert_eq!(variable(&render(&[]), "REDLOCK_WATCH_NAMESPACES"), Value::Null);
}
