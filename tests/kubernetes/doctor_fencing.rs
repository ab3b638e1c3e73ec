//! Tests `redlock doctor --fencing` on the objects of the chart, with masters that have users. The test acts
//! as the controllers and as the kubelet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;

use serde_json::json;

use crate::chart::{chart, run_helm};
use crate::fixture::{BOUND, SERVICE_ACCOUNT};
use crate::program::{Ran, sealed_by, until};
use crate::world::World;
use redlock_testkit::acl::{PASSWORD, line, line_of};
use redlock_testkit::{RedisServer, ServerOptions, eventually_blocking};

const METRICS: &str =
    "redlock_fence_cgroup2 1\nredlock_fence_guardian_up 1\nredlock_fence_guardian_degraded 0\n";
const AUTH: &str = "  auth: {secretRef: {name: masters, namespace: NAMESPACE}}\n  firstStart: Immediate\n";

/// Returns a listener at an address to which an API server forwards requests: it refuses loopback addresses.
fn listener() -> Option<(TcpListener, SocketAddr)> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    let listener = TcpListener::bind((address, 0))
        .ok()
        .filter(|_| !address.is_loopback())?;
    let address = listener.local_addr().ok()?;
    Some((listener, address))
}

/// Answers like the HTTP server of a node agent.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let _ = connection.read(&mut [0; 4096]);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{METRICS}",
                METRICS.len()
            );
            let _ = connection.write_all(answer.as_bytes());
        }
    });
}

fn secret(world: &World, name: &str, user: &str) {
    let data = json!({"username": user, "password": PASSWORD});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    world.apply(&secret.to_string());
}

fn ready(world: &World, kind: &str, name: &str, more: &serde_json::Value) {
    let mut status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    for (field, value) in more.as_object().unwrap() {
        status[field] = value.clone();
    }
    let patch = json!({"status": status}).to_string();
    world.kubectl(&[
        "patch",
        kind,
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ]);
}

fn node(world: &World, name: &str) {
    let labels = json!({"kubernetes.io/os": "linux"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    world.apply(&node.to_string());
    ready(world, "node", name, &json!({}));
}

fn pod(world: &World, component: &str, address: SocketAddr) {
    let name = format!("{component}-1");
    let image = world.kubectl(&[
        "get",
        "daemonset",
        "redlock-operator-node-agent",
        "--output=jsonpath={.spec.template.spec.containers[0].image}",
    ]);
    let labels = json!({
        "app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/component": component,
    });
    let port = json!({"name": "http", "containerPort": address.port()});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": image, "ports": [port]}]},
    });
    world.apply(&pod.to_string());
    let address = address.ip().to_string();
    ready(
        world,
        "pod",
        &name,
        &json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}),
    );
}

/// Runs the doctor until it fails and prints all of these texts.
fn doctor(world: &World, more: &[&str], texts: &[&str]) -> Ran {
    let arguments = [&["doctor", "--quorum", "default", "--fencing"], more].concat();
    until(|| world.redlock(&arguments), 1, texts)
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_missing_parts_of_node_fencing() {
    let options = || ServerOptions {
        users: vec![line(), line_of("redlock-node")],
        ..ServerOptions::default()
    };
    let masters = (0..3).map(|_| RedisServer::start(&options()).unwrap()).collect();
    let world = World::of(masters, World::small_options()).await;
    secret(&world, "masters", "redlock");
    secret(&world, "nodes", "redlock-node");
    world.apply(&world.quorum("default", &AUTH.replace("NAMESPACE", world.namespace.name())));
    sealed_by(&world.masters, || {
        vec![world.redlock(&["init", "--quorum", "default"])]
    });
    doctor(
        &world,
        &[],
        &[
            "✗ driver",
            "there is no CSIDriver object",
            "component=node-guardian",
            "--set fencing.enabled=true",
        ],
    );

    let chart = chart();
    let namespace = format!("--namespace={}", world.namespace.name());
    let fixed = [
        "template",
        SERVICE_ACCOUNT,
        chart.to_str().unwrap(),
        &namespace,
        "--show-only=templates/fencing.yaml",
        "--set=fencing.enabled=true,fencing.redis.secretName=nodes",
    ];
    world.apply(&run_helm(&world.plane, &fixed).unwrap());
    let served = listener();
    let address = served
        .as_ref()
        .map_or_else(|| ([192, 0, 2, 1], 1).into(), |(_, address)| *address);
    let is_served = served.is_some();
    if let Some((listener, _)) = served {
        serve(listener);
    }
    node(&world, "node-1");
    world.kubectl(&["create", "serviceaccount", "default"]);
    pod(&world, "operator", address);
    pod(&world, "node-guardian", address);
    doctor(
        &world,
        &[],
        &[
            "✗ nodes            0 of 1 are guarded",
            "Node node-1",
            "✗ node-agent       no pod on this node",
            "✗ registered",
        ],
    );

    pod(&world, "node-agent", address);
    let driver = json!({"name": "fencing.redlock.dev", "nodeID": "node-1", "topologyKeys": null});
    let csi_node = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"}, "spec": {"drivers": [driver]},
    });
    world.apply(&csi_node.to_string());
    let good = [
        "✓ driver",
        "✓ node-agent       DaemonSet",
        "✓ node-guardian",
        "✓ version",
        "✓ nodes            1 of 1 are guarded",
        "✓ redis user       reads the locks at each master, and may not write",
    ];
    eventually_blocking(BOUND, "the metrics are read if they are served", || {
        let ran = doctor(&world, &["--verbose"], &good);
        println!("{}", ran.stdout);
        let is_read = !ran.stdout.contains("! metrics");
        if is_read == is_served { Ok(()) } else { Err(ran) }
    });
    if !is_served {
        eprintln!("NOT TESTED: metrics through the API server: this machine has the address 127.0.0.1 only");
    }

    // One user may write, and another does not exist.
    secret(&world, "nodes", "redlock");
    doctor(
        &world,
        &["--quiet"],
        &[
            "CSIDriver fencing.redlock.dev: redis user: m0: it may write",
            "docs/redis-acl.md",
        ],
    );
    secret(&world, "nodes", "nobody");
    doctor(&world, &["--quiet"], &["redis user: m0: it may not read"]);
    world.kubectl(&["delete", "secret", "nodes"]);
    doctor(
        &world,
        &[],
        &["! redis user       not checked", "there is no Secret", "/nodes"],
    );
}
