//! Tests a replica that reads a target to stop it, while its sibling wins the lock and starts the target.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::client::Body as KubeBody;
use kube::core::GroupVersionKind;
use redlock::lease::ClusterId;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::fixture::{BOUND, Operator};
use crate::label_pods::Agent;
use crate::targets::{GATE, GATE_KIND, Gates, guarded, install};
use crate::world::{World, quorum_of};
use redlock_testkit::{Mode, Proxy, eventually};

/// Longer than a start takes after a win of the lock, also on a busy machine.
const LATER: Duration = Duration::from_millis(400);
/// The command time-out is longer than the delays of a request and its reply, and fits three times into the renew
/// deadline.
const PATIENT: &str = "  firstStart: Immediate\n  commandTimeoutMilliseconds: 1400\n";

/// A proxy between one replica and the API server that holds requests for the scale while it is closed.
struct Gatekeeper {
    client: Client,
    open: watch::Sender<bool>,
    /// The methods of the requests for the scale.
    seen: watch::Sender<Vec<String>>,
    /// The target whose status changes before each write of the scale.
    busy: Option<Gates>,
}

async fn forward(State(keeper): State<Arc<Gatekeeper>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove("authorization");
    parts.headers.remove("host");
    if parts.uri.path().ends_with("/gates/gate/scale") {
        keeper
            .seen
            .send_modify(|seen| seen.push(parts.method.to_string()));
        if let Some(gates) = keeper.busy.as_ref().filter(|_| parts.method == Method::PATCH) {
            let count = i64::try_from(keeper.seen().len()).unwrap();
            gates.count("gate", count).await;
        }
        let mut open = keeper.open.subscribe();
        open.wait_for(|open| *open).await.unwrap();
    }
    let body: Bytes = to_bytes(body, usize::MAX).await.unwrap();
    let request = axum::http::Request::from_parts(parts, KubeBody::from(body.to_vec()));
    keeper.client.send(request).await.unwrap().map(Body::new)
}

impl Gatekeeper {
    /// Starts the proxy; returns it and its URL.
    async fn start(client: Client, busy: Option<Gates>) -> (Arc<Self>, String) {
        let keeper = Arc::new(Self {
            client,
            open: watch::channel(true).0,
            seen: watch::channel(Vec::new()).0,
            busy,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(forward).with_state(keeper.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (keeper, url)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.borrow().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn target_that_a_sibling_has_started_is_not_stopped() {
    let world = World::new(3).await;
    install(&world).await;
    let mut proxies = Vec::new();
    for master in &world.masters {
        proxies.push(Proxy::to_port(master.port()).await);
    }
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 10");
    world.apply(&long(&quorum_of("default", &urls, PATIENT)));
    let gates = Gates::of(&world);
    world.apply(GATE);
    // The controller reports a pod that ends slowly, so both replicas read the target continuously.
    gates.count("gate", 1).await;
    let other = ClusterId::new("elsewhere", "elsewhere").unwrap();
    world.redlock(&["init", "--quorum", "default"]).expect(0, &[]);
    let elsewhere = Agent::start(&world, "report", "there", other).await;
    elsewhere.holds().await;
    elsewhere.mark_clean().await;
    let first = world.operator("replica-1").await;
    let (keeper, url) = Gatekeeper::start(world.plane.admin(), None).await;
    let kubeconfig = world.kubeconfig(Some(url)).await;
    let second = Operator::start_with(&kubeconfig, world.namespace.name(), "replica-2", |_| {});
    // The second replica learns of a release later than its sibling.
    let reach = |mode| {
        let process = second.child.pid();
        proxies.iter().for_each(|proxy| proxy.set_for(process, mode));
    };
    reach(Mode::Delay(LATER));
    first.wait_ready();
    second.wait_ready();

    world.apply(&long(&guarded("report", "gate")).replace("stopSeconds: 1", "stopSeconds: 3"));
    second.until_holder("report", "there").await;
    gates.until("gate", 0).await;
    keeper.open.send_replace(false);
    let before = keeper.seen().len();
    eventually(BOUND, "replica-2 reads the scale to stop it", async || {
        let seen = keeper.seen();
        if seen.len() > before { Ok(()) } else { Err(seen) }
    })
    .await;
    // Until the release, either replica may write the stop.
    let released = keeper.seen().len();
    // On a busy machine, the sibling may need longer than the delay.
    reach(Mode::BlackHole);
    elsewhere.release().await;
    gates.until("gate", 1).await;
    reach(Mode::Delay(LATER));
    second.until_holder("report", "replica-1").await;
    let generation = gates.generation("gate").await;
    let before = keeper.seen().len();
    keeper.open.send_replace(true);
    // The answer may show all that replica-2 needs: only a change makes it read the target again. It may miss the first
    // change while it handles that answer.
    let mut count = 1;
    eventually(BOUND, "replica-2 reads the changed scale", async || {
        let seen = keeper.seen();
        count += 1;
        gates.count("gate", count).await;
        if seen.len() > before { Ok(()) } else { Err(seen) }
    })
    .await;
    let seen = keeper.seen();
    println!("requests of replica-2 for the scale: {seen:?}, {before} before it continued");
    assert!(
        seen[released..].iter().all(|method| method == "GET"),
        "{seen:?}, {released} before the release"
    );
    assert_eq!(gates.generation("gate").await, generation);
    assert_eq!(gates.replicas("gate").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_whose_status_changes_all_the_time_is_stopped() {
    let world = World::new(3).await;
    install(&world).await;
    // The lease is as long as that of the agent.
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 10");
    world.apply(&long(&world.quorum("default", "  firstStart: Immediate\n")));
    let gates = Gates::of(&world);
    world.apply(GATE);
    let other = ClusterId::new("elsewhere", "elsewhere").unwrap();
    world.redlock(&["init", "--quorum", "default"]).expect(0, &[]);
    let elsewhere = Agent::start(&world, "report", "there", other).await;
    elsewhere.holds().await;
    let (keeper, url) = Gatekeeper::start(world.plane.admin(), Some(Gates::of(&world))).await;
    let kubeconfig = world.kubeconfig(Some(url)).await;
    let operator = Operator::start_with(&kubeconfig, world.namespace.name(), "replica-1", |_| {});
    operator.wait_ready();
    world.apply(&long(&guarded("report", "gate")));
    gates.until("gate", 0).await;
    let seen = keeper.seen();
    let writes = seen.iter().filter(|method| *method == "PATCH").count();
    assert!(writes > 1, "the first write meets another version: {seen:?}");
}

/// Proves the precondition on which the operator relies where it stops an object in any version. The scale of a
/// custom resource has no such precondition: an object that was created again under the name is the target, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_scale_of_a_built_in_kind_is_written_only_for_the_uid_in_the_patch() {
    let world = World::new(0).await;
    world.define(GATE_KIND).await;
    world.apply(GATE);
    world.kubectl(&["create", "deployment", "gate", "--image=none", "--replicas=1"]);
    for (group, kind) in [("test.example", "Gate"), ("apps", "Deployment")] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(world.plane.admin(), world.namespace.name(), &resource);
        let uid = api.get("gate").await.unwrap().metadata.uid;
        let scale = async |uid| {
            let change = json!({"metadata": {"uid": uid}, "spec": {"replicas": 0}});
            let patch = Patch::Merge(&change);
            let parameters = PatchParams::default();
            api.patch_scale("gate", &parameters, &patch).await.map(drop)
        };
        let other = scale(Some("another".to_owned())).await;
        let refused = matches!(&other, Err(kube::Error::Api(status)) if status.is_conflict());
        assert_eq!(refused, kind == "Deployment", "{kind}: {other:?}");
        scale(uid).await.unwrap();
    }
}
