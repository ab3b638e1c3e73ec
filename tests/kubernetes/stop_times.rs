//! Tests that default stop times follow from the pod templates, also while the lock is held.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use redlock::clock;
use redlock::lease::BootInstant;
use serde_json::{Value, json};

use crate::fixture::BOUND;
use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder, Run};
use crate::world::{World, condition, message};
use redlock_testkit::eventually;

/// The grace period of the pods of [`SLOW`] after the change of its template.
const GRACE: u64 = 8;
/// The Deployment whose lock has a short lease, which only the pod template makes possible.
const SLOW: &str = "slow";
/// Its lease in seconds: too short for the default stop of 35 s, and long enough that its pods have ended several
/// seconds before the operator would delete them.
const LEASE: u64 = 36;
/// The Deployment whose lock has no timings.
const QUICK: &str = "quick";

/// Two Deployments that are switched by locks without `stopSeconds`.
pub struct Switched<'a> {
    world: &'a World,
    recorder: &'a Recorder,
}

fn deployment(name: &str, grace: u64) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    \
         metadata: {{labels: {{app: {name}}}, annotations: {{{IGNORES_SIGTERM}: \"true\"}}}}\n    \
         spec: {{terminationGracePeriodSeconds: {grace}, containers: [{{name: web, image: web}}]}}\n"
    )
}

fn lock(name: &str, more: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}}}\n\
         spec: {{quorumRef: {{name: long}}{more}, targets: [{{name: it, action: Scale, \
         ref: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}]}}\n"
    )
}

/// Returns the seconds of lease and stop in the status.
fn timings(status: &Value) -> (u64, u64) {
    let of = |name: &str| status["timings"][name].as_u64().unwrap_or(0) / 1_000;
    (of("leaseDurationMilliseconds"), of("stopMilliseconds"))
}

impl<'a> Switched<'a> {
    /// Starts both under their locks, with the stop times of their templates.
    pub async fn start(world: &'a World, recorder: &'a Recorder) -> Self {
        let quorum = world.quorum("long", "  keyPrefix: long\n  firstStart: Immediate\n");
        world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 60"));
        let this = Self { world, recorder };

        // Without the Deployment, its grace period is unknown: the lock is refused until it exists.
        world.apply(&lock(SLOW, &format!(", leaseDurationSeconds: {LEASE}")));
        let status = world.lock_status(SLOW, "is refused", |status| {
            condition(status, "Ready").1 == "StopBudgetTooShort"
        });
        let status = status.await;
        let why = message(&status, "Ready");
        assert!(why.contains("does not leave 35 s"), "{why}");
        world.apply(&deployment(SLOW, 2));
        world.apply(&deployment(QUICK, 2));
        world.apply(&lock(QUICK, ""));
        this.is(SLOW, (LEASE, 7)).await;
        this.is(QUICK, (35, 7)).await;
        for name in [SLOW, QUICK] {
            this.until_running(name, 1).await;
        }
        this
    }

    /// Changes the grace periods: the Deployments get new pods and the locks new timings, without a transition.
    pub async fn edit(&self) {
        let held = |status: &Value| {
            [
                "holderIdentity",
                "fencingToken",
                "leaseTransitions",
                "acquireTime",
            ]
            .map(|name| status[name].clone())
        };
        let (slow, quick) = (self.is(SLOW, (LEASE, 7)).await, self.is(QUICK, (35, 7)).await);
        for (name, before, grace, expected) in [
            (SLOW, &slow, GRACE, (LEASE, GRACE + 5)),
            (QUICK, &quick, 60, (60, 35)),
        ] {
            let grace = json!({"terminationGracePeriodSeconds": grace});
            let patch = json!({"spec": {"template": {"spec": grace}}}).to_string();
            let started = Instant::now();
            self.world
                .kubectl(&["patch", "deployment", name, "--type=merge", "--patch", &patch]);
            let after = self.is(name, expected).await;
            println!(
                "{name}: stops within {} s {:?} after its edit",
                expected.1,
                started.elapsed()
            );
            assert_eq!(held(before), held(&after), "{name}");
        }
        let note = self.world.event_message(QUICK, "StopTooShort").await;
        assert!(
            note.contains("asks for a stop of 65 s")
                && note.contains("set stopSeconds: 65")
                && note.contains("a lease of 90 s"),
            "{note}"
        );
        assert_eq!(self.world.event(SLOW, "StopTooShort").await, None);
        for name in [SLOW, QUICK] {
            eventually(
                BOUND,
                &format!("one pod of {name} made way for another"),
                async || {
                    let runs = self.runs(name);
                    let ended = runs.iter().filter(|run| run.end.is_some()).count();
                    if (runs.len(), ended) == (2, 1) {
                        Ok(())
                    } else {
                        Err(runs)
                    }
                },
            )
            .await;
        }
    }

    /// Asserts that the pod gets the whole grace period of its present template, and ends before the lease
    /// does. The masters have hung since `hung`.
    pub async fn ends(&self, hung: Instant) {
        self.until_running(SLOW, 0).await;
        let took = hung.elapsed();
        println!("no pod of {SLOW} ran {took:?} after the masters hung");
        assert!(took < Duration::from_secs(LEASE), "{took:?}");
        self.had_its_grace();
        let deletes = self
            .world
            .requests()
            .into_iter()
            .filter(|event| event.verb == "delete");
        let deleted: Vec<String> = deletes.filter_map(|event| Some(event.object_ref?.name)).collect();
        assert!(
            !deleted.iter().any(|pod| pod.starts_with(SLOW)),
            "it had its time: {deleted:?}"
        );
    }

    /// Asserts that the last pod ended at least its grace period after the operator stopped the Deployment.
    fn had_its_grace(&self) {
        let run = self.runs(SLOW).pop().unwrap();
        // In this order, a pause between the two reads makes no time earlier than it was.
        let (boot, now) = (clock::now(), Timestamp::now());
        let at = |moment: BootInstant| now - boot.since(moment);
        let (start, end) = (at(run.start), at(run.end.unwrap()));
        let mut requests = self.world.requests();
        requests.retain(|event| {
            let object = event.object_ref.as_ref();
            object.is_some_and(|object| object.subresource == "scale" && object.name == SLOW)
                && event
                    .request_object
                    .as_ref()
                    .is_some_and(|sent| sent["spec"]["replicas"] == 0)
        });
        let times = requests.iter().map(|event| event.request_received_timestamp);
        let stopped = times.filter(|time| *time > start).min().unwrap();
        println!("{SLOW} was stopped at {stopped}, its pod ended at {end}");
        assert!(
            end >= stopped + Duration::from_secs(GRACE),
            "{stopped} to {end} is less than the grace period"
        );
    }

    async fn is(&self, name: &str, expected: (u64, u64)) -> Value {
        let what = format!("is held, lease and stop {expected:?} s");
        let status = self.world.lock_status(name, &what, |status| {
            status["role"] == "Active" && timings(status) == expected
        });
        status.await
    }

    /// Returns the processes of the pods of a Deployment, sorted by their start.
    fn runs(&self, name: &str) -> Vec<Run> {
        let mut runs = self.recorder.runs();
        runs.retain(|run| run.owner.starts_with(&format!("ReplicaSet {name}-")));
        runs
    }

    async fn until_running(&self, name: &str, wanted: usize) {
        eventually(BOUND, &format!("{wanted} pods of {name} run"), async || {
            let running = self.runs(name).iter().filter(|run| run.end.is_none()).count();
            if running == wanted { Ok(()) } else { Err(running) }
        })
        .await;
    }
}
