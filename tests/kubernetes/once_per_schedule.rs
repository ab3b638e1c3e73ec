//! Tests that each scheduled run of a CronJob runs in one cluster: two clusters that share masters, without a
//! wait for the next minute.

#[path = "once_per_schedule/pair.rs"]
mod pair;
#[path = "once_per_schedule/soak.rs"]
mod soak;

use std::time::Instant;

use serde_json::json;

use crate::fixture::{BOUND, Operator};
use crate::world::{World, condition, message};
use pair::{NAME, NAMES, Pair, REGISTER, declared, label, make_job, suspended, token, yearly};
use redlock_testkit::eventually;

fn now() -> i64 {
    i64::try_from(redlock::clock::unix_time().as_secs()).unwrap()
}

/// Returns the counter for this result in the metrics of an operator.
fn counted(operator: &Operator, result: &str) -> u64 {
    let (_, text) = operator.get("/metrics");
    let wanted = format!("result=\"{result}\"");
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("redlock_slot_claims_total{") && line.contains(&wanted));
    let value = lines.next().and_then(|line| line.rsplit_once(' '));
    value.map_or(0, |(_, value)| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_runs_where_the_lock_is_held_and_nowhere_else() {
    let pair = Pair::new(3, World::small_options()).await;
    for world in &pair.clusters {
        world.apply(&yearly());
    }
    pair.clusters[0].apply(&declared());
    // Users rename the target in one cluster after the other.
    let renamed = declared().replace("{name: nightly,", "{name: renamed,");
    pair.clusters[1].apply(&renamed);
    let mut first = pair.operator(0, "one").await;
    let status = pair.is_active(0).await;
    pair.forget_first_start().await;
    let mut second = pair.operator(1, "other").await;
    pair.is_standby(1).await;
    let slot = now() - 1_000;

    // The slot is claimed under the token of the lease, and its Job runs; the other Job is labelled, reported
    // and deleted.
    let held = status["fencingToken"].to_string();
    let waiting = pair.schedule(1, "slot-0", slot).await;
    let made = Instant::now();
    pair.schedule(0, "slot-0", slot).await;
    let job = pair.runs(0, "slot-0").await;
    println!("runs {:?} after it was made", made.elapsed());
    pair.is_gone(1, "slot-0").await;
    println!("the loser is gone {:?} after it was made", made.elapsed());
    assert_eq!(label(&job), Some("claimed"));
    assert_eq!(token(&job), Some(&*held));
    let note = pair.clusters[1].event_message(NAME, "SlotRunsElsewhere").await;
    assert!(note.contains("runs in cluster eu-1"), "{note}");
    let managers = job.metadata.managed_fields.unwrap().into_iter();
    let managers: Vec<String> = managers.filter_map(|entry| entry.manager).collect();
    assert!(
        managers.contains(&"redlock-operator-once-per-schedule".to_owned()),
        "{managers:?}"
    );
    assert!(suspended(&waiting), "made so by its template");
    // Nothing is ever stopped, so no finalizer is needed.
    let finalizers = pair.clusters[0].kubectl(&["get", "ll", NAME, "-o", "jsonpath={.metadata.finalizers}"]);
    assert_eq!(finalizers, "");
    eventually(BOUND, "each claim is counted once", async || {
        let counts = [&first, &second].map(|one| (counted(one, "claimed"), counted(one, "elsewhere")));
        if counts == [(1, 0), (0, 1)] {
            Ok(())
        } else {
            Err(counts)
        }
    })
    .await;

    by_hand(&pair, slot + 1).await;
    too_old(&pair).await;

    // A waiting Job begins with the lock, oldest first; a running one continues.
    for (name, slot) in [("slot-5", slot + 5), ("slot-4", slot + 4)] {
        pair.schedule(1, name, slot).await;
    }
    let pid = first.child.pid();
    first.child.signal(nix::sys::signal::Signal::SIGTERM);
    let (exit, took) = first.child.wait(BOUND);
    assert!(exit.success(), "{exit} of {pid}");
    println!("ended {took:?} after SIGTERM, with a Job that runs");
    for name in ["slot-1", "slot-4", "slot-5", "by-hand"] {
        pair.runs(1, name).await;
    }
    let job = pair.job(0, "slot-0").await.unwrap();
    assert!(!suspended(&job), "a claimed Job runs to its end");

    left_by_a_crash(&pair, slot + 10).await;
    second.child.kill();
}

/// Starts Jobs like a user, in the cluster that stands by.
async fn by_hand(pair: &Pair, slot: i64) {
    let cluster = &pair.clusters[1];
    pair.schedule(1, "slot-1", slot).await;
    let run = r#"{"spec": {"suspend": false}}"#;
    cluster.kubectl(&["patch", "job", "slot-1", "--type=merge", "--patch", run]);
    let started = Instant::now();
    let note = cluster.event_message(NAME, "JobStartedByHand").await;
    println!(
        "suspended again within {:?}, the read of the events included",
        started.elapsed()
    );
    assert!(note.contains("\"kubectl-patch\""), "{note}");
    assert!(suspended(&pair.job(1, "slot-1").await.unwrap()));

    let manual = json!({"cronjob.kubernetes.io/instantiate": "manual"});
    make_job(cluster, "by-hand", &manual).await;
    let note = cluster.event_message(NAME, "ManualJobWaits").await;
    assert!(note.contains("by-hand"), "{note}");
    let job = pair.job(1, "by-hand").await.unwrap();
    assert_eq!((label(&job), suspended(&job)), (Some("waits"), true));
    // A user creates a Job where the lock is held.
    pair.clusters[0].kubectl(&["create", "job", "--from=cronjob/report", "made-here"]);
    pair.runs(0, "made-here").await;
}

async fn too_old(pair: &Pair) {
    for cluster in [0, 1] {
        pair.schedule(cluster, "old", now() - 3_700).await;
        pair.is_gone(cluster, "old").await;
        let note = pair.clusters[cluster].event_message(NAME, "SlotTooOld").await;
        assert!(note.contains("maxSlotAgeSeconds (3600)"), "{note}");
    }
}

/// Simulates a claim on a majority by an operator that ended before the Job ran. Its cluster stands by now.
async fn left_by_a_crash(pair: &Pair, slot: i64) {
    let job = pair.schedule(0, "left", slot).await;
    let claimed = format!("{slot}|{}@{}", job.metadata.uid.unwrap(), NAMES[0]);
    pair.set_registers(REGISTER, &claimed).await;
    pair.schedule(1, "left", slot).await;
    let sibling = pair.operator(0, "sibling").await;
    let job = pair.runs(0, "left").await;
    assert!(token(&job).is_some());
    pair.is_gone(1, "left").await;
    eventually(BOUND, "the event was emitted", async || {
        let all = pair.clusters[1].kubectl(&["get", "events.events.k8s.io", "--output", "json"]);
        if all.contains("Job") && all.contains("/left is deleted") {
            Ok(())
        } else {
            Err(all)
        }
    })
    .await;
    assert_eq!(sibling.lock(NAME)["role"], "Standby");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_whose_jobs_would_run_everywhere_is_refused_with_the_line_to_paste() {
    let pair = Pair::new(3, World::small_options()).await;
    let cluster = &pair.clusters[0];
    let unsafe_one = yearly().replace("      suspend: true\n", "");
    cluster.apply(&unsafe_one);
    cluster.apply(&declared());
    let operator = pair.operator(0, "one").await;
    let enforced = async |reason: &str| {
        let status = cluster.lock_status(NAME, reason, |status| condition(status, "Enforced").1 == reason);
        message(&status.await, "Enforced").to_owned()
    };
    let text = enforced("TargetNotSafe").await;
    println!("{text}");
    assert!(
        text.contains("spec:\n  jobTemplate:\n    spec:\n      suspend: true"),
        "{text}"
    );
    pair.forget_first_start().await;

    // Such a Job also waits while the CronJob is not safe.
    cluster.apply(
        &yearly()
            .replace("0 0 1 1 *", "@every 8760h")
            .replace("  timeZone: Etc/UTC\n", ""),
    );
    eventually(BOUND, "refused for its schedule", async || {
        let text = enforced("TargetNotSafe").await;
        if text.contains("@every 8760h") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    pair.schedule(0, "slot-0", now() - 100).await;
    // A slot that was claimed before is finished, even if the cluster had another name at that time.
    let slot = now() - 200;
    let job = pair.schedule(0, "claimed", slot).await;
    let claimed = format!("{slot}|{}@formerly", job.metadata.uid.unwrap());
    pair.set_registers(REGISTER, &claimed).await;
    pair.runs(0, "claimed").await;
    assert!(suspended(&pair.job(0, "slot-0").await.unwrap()));
    let odd = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": "tonight"});
    make_job(cluster, "odd", &odd).await;
    let note = cluster.event_message(NAME, "SlotUnreadable").await;
    assert!(note.contains("/odd stays suspended"), "{note}");

    // Problems of a suspended CronJob are not reported.
    let suspended_one = format!(
        "{}  suspend: true\n",
        yearly().replace("  timeZone: Etc/UTC\n", "")
    );
    cluster.apply(&suspended_one);
    println!("{}", cluster.event_message(NAME, "TargetSuspended").await);
    let note = cluster.event_message(NAME, "TimeZoneMissing").await;
    assert!(note.ends_with("spec:\n  timeZone: Etc/UTC"), "{note}");
    enforced("AsDeclared").await;
    pair.runs(0, "slot-0").await;
    cluster.apply(&format!("{}  suspend: false\n", yearly()));
    enforced("AsDeclared").await;

    // Without its CronJob, the operator can do nothing and waits for it.
    cluster.kubectl(&["delete", "cronjob", NAME]);
    enforced("TargetNotFound").await;
    cluster.apply(&yearly());
    enforced("AsDeclared").await;
    // A lock with only such targets is released at once.
    cluster.kubectl(&["delete", "ll", NAME, "--timeout=60s"]);
    eventually(BOUND, "it is released", async || {
        if operator.locks().is_empty() {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
}
