//! The control plane and masters of one test, and the actions of a user on them.
//!
//! They are not shared, since a RedisQuorum is cluster-scoped: the operators of two tests would contend for
//! the same locks.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use redlock::api::{LeaderLock, RedisQuorum};
use serde_json::Value;

use crate::apply::apply;
use crate::fixture::{
    BOUND, Operator, Options, PooledPlane, SERVICE_ACCOUNT, TestNamespace, audit, established,
};
use crate::program::{Ran, redlock_with};
use redlock_testkit::{RedisServer, ServerOptions, eventually, pause_after};

pub struct World {
    pub plane: PooledPlane,
    pub masters: Vec<RedisServer>,
    pub namespace: TestNamespace,
}

impl World {
    /// Starts with this many masters that were never used, and installs the definitions and rights.
    pub async fn new(masters: usize) -> Self {
        Self::with(masters, Self::options()).await
    }

    /// Starts without controllers, which only targets need.
    pub async fn small(masters: usize) -> Self {
        Self::with(masters, Self::small_options()).await
    }

    /// Returns the options of a world, with an audit log.
    pub fn options() -> Options {
        Options {
            audit: true,
            ..Options::default()
        }
    }

    pub fn small_options() -> Options {
        Options {
            controller_manager: false,
            ..Self::options()
        }
    }

    pub async fn with(masters: usize, options: Options) -> Self {
        let masters = (0..masters)
            .map(|_| RedisServer::start(&ServerOptions::default()).unwrap())
            .collect();
        Self::of(masters, options).await
    }

    /// Starts with these masters.
    pub async fn of(masters: Vec<RedisServer>, options: Options) -> Self {
        let plane = PooledPlane::take(options).await;
        let namespace = plane.namespace("redlock").await;
        plane.install_rbac(namespace.name()).await;
        Self {
            plane,
            masters,
            namespace,
        }
    }

    /// Installs the rights of the chart with one kind of targets.
    pub async fn grant_targets(&self, group: &str, resource: &str) {
        let rights = [
            &*format!("targetKinds[0].group={group}"),
            &*format!("targetKinds[0].resource={resource}"),
        ];
        self.plane.install_rbac_with(self.namespace.name(), &rights).await;
    }

    /// Starts a replica of the operator with the rights of the chart.
    pub async fn operator(&self, identity: &str) -> Operator {
        Operator::start(&self.plane, self.namespace.name(), identity).await
    }

    /// The same after `change` has changed its command.
    pub async fn operator_with(&self, identity: &str, change: impl FnOnce(&mut Command)) -> Operator {
        let kubeconfig = self.kubeconfig(None).await;
        Operator::start_with(&kubeconfig, self.namespace.name(), identity, change)
    }

    /// The same in a cluster with this name.
    pub async fn operator_of(&self, cluster: &str, identity: &str) -> Operator {
        let kubeconfig = self.kubeconfig(None).await;
        Operator::start_with(&kubeconfig, self.namespace.name(), identity, |command| {
            command.env("REDLOCK_CLUSTER", cluster);
        })
    }

    /// Runs `redlock` as the administrator; returns its output and exit code.
    pub fn redlock(&self, arguments: &[&str]) -> Ran {
        redlock_as(&self.plane.kubeconfig_admin(), arguments, &[])
    }

    /// Writes the kubeconfig of a replica.
    pub async fn kubeconfig(&self, server: Option<String>) -> PathBuf {
        self.plane
            .service_account_kubeconfig(self.namespace.name(), SERVICE_ACCOUNT, server)
            .await
    }

    /// Applies a manifest in the namespace of the test; panics with the answer if that fails.
    pub fn apply(&self, manifest: &str) {
        let applied = apply(&self.plane, self.namespace.name(), manifest);
        applied.unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    }

    /// The same with `kubectl apply`, which keeps defaults and fields of others that the manifest no longer
    /// names.
    pub fn apply_by_kubectl(&self, manifest: &str) {
        let (worked, output) = self.try_apply(manifest);
        assert!(worked, "{output}\n{manifest}");
    }

    /// Runs `kubectl apply` in the namespace of the test; returns whether it succeeded, and its output.
    pub fn try_apply(&self, manifest: &str) -> (bool, String) {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(file.path(), manifest).unwrap();
        let path = file.path().display().to_string();
        let namespace = self.namespace.name();
        let output = self
            .plane
            .kubectl(&["apply", "--namespace", namespace, "--filename", &path]);
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Applies the definition of a kind, and waits until the kind is served.
    pub async fn define(&self, definition: &str) {
        self.apply(definition);
        let parsed: Value = serde_yaml::from_str(definition).unwrap();
        let name = parsed["metadata"]["name"].as_str().unwrap();
        established(&Api::all(self.plane.admin()), name).await;
    }

    /// Runs `kubectl` in the namespace of the test; returns its output, and panics if it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self
            .plane
            .kubectl(&[&["--namespace", self.namespace.name()], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns a RedisQuorum of this name on the masters, with leases of up to 6 s and `more` lines of its spec. A
    /// busy machine pauses for a second or two, and a lease of 2 s would be lost then.
    pub fn quorum(&self, name: &str, more: &str) -> String {
        let urls: Vec<String> = self.masters.iter().map(RedisServer::url).collect();
        quorum_of(name, &urls, more)
    }

    /// Returns the requests of the operator so far, from the audit log.
    pub fn requests(&self) -> Vec<audit::Event> {
        let account = format!(
            "system:serviceaccount:{}:{SERVICE_ACCOUNT}",
            self.namespace.name()
        );
        let all = audit::events(&self.plane.audit_log()).into_iter();
        all.filter(|event| event.user.username == account).collect()
    }

    /// Returns the number of times that the operator has written a status of this resource.
    pub fn writes(&self, resource: &str) -> usize {
        let is_write = |event: &audit::Event| {
            let object = event.object_ref.as_ref();
            event.verb == "patch"
                && object.is_some_and(|o| o.resource == resource && o.subresource == "status")
        };
        self.requests().iter().filter(|event| is_write(event)).count()
    }

    /// Returns the note of an event with this reason about an object of this name.
    pub async fn event(&self, name: &str, reason: &str) -> Option<String> {
        self.events(name, reason).await.into_iter().next()
    }

    /// Returns the notes of all such events.
    pub async fn events(&self, name: &str, reason: &str) -> Vec<String> {
        Self::notes(&Api::all(self.plane.admin()), name, reason).await
    }

    async fn notes(events: &Api<Event>, name: &str, reason: &str) -> Vec<String> {
        let all = events
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter();
        let regards = |event: &Event| {
            let regarding = event.regarding.as_ref();
            regarding.and_then(|object| object.name.as_deref()) == Some(name)
        };
        all.filter(|event| regards(event) && event.reason.as_deref() == Some(reason))
            .map(|event| event.note.unwrap_or_default())
            .collect()
    }

    /// Waits for an event, and prints it.
    pub async fn event_message(&self, name: &str, reason: &str) -> String {
        let events = Api::all(self.plane.admin());
        let note = eventually(BOUND, &format!("event {reason} of {name}"), async || {
            let notes = Self::notes(&events, name, reason).await;
            notes.into_iter().next().ok_or(())
        })
        .await;
        println!("            {reason}: {note}");
        note
    }

    pub fn locks(&self) -> Api<LeaderLock> {
        Api::namespaced(self.plane.admin(), self.namespace.name())
    }

    pub fn quorums(&self) -> Api<RedisQuorum> {
        Api::all(self.plane.admin())
    }

    /// Waits until the status of a lock meets this condition, and returns the status.
    pub async fn lock_status(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let locks = self.locks();
        status(
            async || serde_json::to_value(locks.get(name).await.ok()?.status).ok(),
            &format!("lock {name} {what}"),
            wanted,
        )
        .await
    }

    /// The same for a quorum.
    pub async fn quorum_status(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let quorums = self.quorums();
        status(
            async || serde_json::to_value(quorums.get(name).await.ok()?.status).ok(),
            &format!("quorum {name} {what}"),
            wanted,
        )
        .await
    }
}

async fn status(get: impl AsyncFn() -> Option<Value>, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(BOUND, what, async || {
        let status = get().await.unwrap_or_default();
        if wanted(&status) { Ok(status) } else { Err(status) }
    })
    .await
}

/// Returns a RedisQuorum on servers behind these urls, otherwise as [`World::quorum`].
pub fn quorum_of(name: &str, urls: &[String], more: &str) -> String {
    let master = |(index, url)| format!("  - {{name: m{index}, url: \"{url}\"}}\n");
    let masters: String = urls.iter().enumerate().map(master).collect();
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {name}}}\nspec:\n  masters:\n\
         {masters}  maxLeaseDurationSeconds: 6\n{more}"
    )
}

/// Waits like [`eventually`], and prints the time that this took.
pub async fn timed<T, E: Debug>(what: &str, probe: impl AsyncFnMut() -> Result<T, E>) -> (T, Duration) {
    let started = Instant::now();
    let seen = eventually(BOUND, what, probe).await;
    let took = started.elapsed();
    println!("{:7.0} ms  {what}", took.as_secs_f64() * 1e3);
    (seen, took)
}

/// Calls `check` repeatedly for this long, so that its assertions hold all the time.
pub async fn throughout(length: Duration, mut check: impl FnMut()) {
    let started = Instant::now();
    while started.elapsed() < length {
        let began = Instant::now();
        check();
        let pause = pause_after(began.elapsed());
        tokio::time::sleep(pause.max(Duration::from_millis(20))).await;
    }
    check();
}

/// Runs `redlock` with this kubeconfig and further variables.
pub fn redlock_as(kubeconfig: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let kubeconfig = ("KUBECONFIG", kubeconfig.to_str().unwrap());
    redlock_with(arguments, &[&[kubeconfig], variables].concat())
}

/// Returns a LeaderLock on quorum `default` with a lease of 6 s and `more` fields of its spec.
pub fn lock(name: &str, more: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}}}\n\
         spec: {{quorumRef: {{name: default}}, leaseDurationSeconds: 6{more}}}\n"
    )
}

/// Returns a manifest of [`quorum_of`] or [`lock`] with a lease of 12 s instead of 6 s, for a test that must not
/// lose it.
pub fn lasting(manifest: &str) -> String {
    manifest.replace("Seconds: 6", "Seconds: 12")
}

/// Returns the status and the reason of one condition.
pub fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = status["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or(("", ""), |condition| {
        (
            condition["status"].as_str().unwrap_or_default(),
            condition["reason"].as_str().unwrap_or_default(),
        )
    })
}

/// Returns the message of one condition.
pub fn message<'a>(status: &'a Value, kind: &str) -> &'a str {
    let conditions = status["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or_default()
}
