//! Tests the answers of the operator over HTTP.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::replica::{BOUND, Folder, Replica, masters, released_in_time, seal, servers};
use redlock_testkit::eventually_blocking;

#[tokio::test]
async fn ready_means_that_a_majority_is_sealed_and_never_that_it_is_active() {
    let servers = servers(3);
    let folder = Folder::with(&servers, &["a"]);
    let first = Replica::start("first", &folder);
    eventually_blocking(
        BOUND,
        "the remedy for masters that were never used is reported",
        || {
            let (status, body) = first.get("/readyz");
            (status == 503 && body.contains("redlock init"))
                .then_some(())
                .ok_or(body)
        },
    );
    assert_eq!(first.lock("a")["role"], "Unknown");
    first.wait_alive();
    seal(&servers, redlock::masters::Credentials::default()).await;
    let second = Replica::start("second", &folder);
    first.wait_ready();
    second.wait_ready();
    eventually_blocking(BOUND, "one is active, both are ready", || {
        let roles = [first.is_active("a"), second.is_active("a")];
        (roles[0] != roles[1]).then_some(()).ok_or(roles)
    });
    first.wait_ready();
    second.wait_ready();

    servers[0].kill();
    eventually_blocking(
        BOUND,
        "one master less is reported, and is no reason not to be ready",
        || {
            let (status, body) = first.get("/readyz");
            (status == 200 && body.contains("\"voting\":2"))
                .then_some(())
                .ok_or(body)
        },
    );
    servers[1].kill();
    eventually_blocking(BOUND, "two less are", || {
        let (status, body) = first.get("/readyz");
        (status == 503 && body.contains("m0") && body.contains("m1"))
            .then_some(())
            .ok_or(body)
    });
    first.wait_alive();
}

#[test]
fn an_empty_folder_leaves_nothing_to_wait_for_and_a_broken_one_does() {
    let folder = Folder::new(&[]);
    let empty = Replica::start("empty", &folder);
    let (status, body) = empty.get("/readyz");
    assert!(
        status == 200 && body.contains("nothing is declared"),
        "{status} {body}"
    );
    assert_eq!(empty.locks(), Vec::<Value>::new());
    assert_eq!(empty.get("/nothing").0, 404);
    let broken = Folder::new(&[("x.yaml", "kind: RedisQuorum\n")]);
    let broken = Replica::start("broken", &broken);
    let (status, body) = broken.get("/readyz");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("x.yaml"), "{body}");
}

#[tokio::test]
async fn the_shape_of_locks_is_stable() {
    let masters = masters(5).await;
    let folder = Folder::with(&masters, &["a"]);
    let replica = Replica::start_with("r", &folder, |c| _ = c.args(["--cluster", "eu-1/uid"]));
    replica.wait_active("a");
    eventually_blocking(BOUND, "all five vote", || {
        let lock = replica.lock("a");
        (lock["quorum"] == "5/5").then_some(()).ok_or(lock)
    });
    let lock = replica.lock("a");
    let keys: BTreeSet<&str> = lock.as_object().unwrap().keys().map(String::as_str).collect();
    let stable = [
        "namespace",
        "name",
        "lockName",
        "role",
        "holderIdentity",
        "holderCluster",
        "fencingToken",
        "validForMilliseconds",
        "quorum",
        "leaseTransitions",
    ];
    assert_eq!(keys, BTreeSet::from(stable));
    assert_eq!(lock["namespace"], "ns");
    assert_eq!(lock["lockName"], "ns/a");
    assert_eq!(lock["role"], "Active");
    assert_eq!(lock["holderIdentity"], "r");
    assert_eq!(lock["holderCluster"], "eu-1");
    assert!(lock["fencingToken"].is_u64());
    assert!((1..=10_000).contains(&lock["validForMilliseconds"].as_u64().unwrap()));
    assert_eq!(lock["leaseTransitions"], 0);
}

/// Returns families by name, with their samples; panics on a line that is not exposition text.
fn families(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut families: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let (mut current, mut kind, mut helped) = (String::new(), String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(help.ends_with('.') && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name), "no help: {line}");
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            (current, kind) = (name.to_owned(), of.to_owned());
            assert!(families.insert(name.to_owned(), Vec::new()).is_none(), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let name = series.split('{').next().unwrap();
            let base = match kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .expect(line),
                _ => name,
            };
            assert_eq!(base, current, "{line}");
            assert!(
                !series.contains("namespace=\"") || series.contains("lock_namespace="),
                "{line}"
            );
            let samples = families.get_mut(&current).unwrap();
            assert!(samples.iter().all(|(other, _)| other != series), "twice: {line}");
            samples.push((series.to_owned(), value.parse().expect(line)));
        }
    }
    families
}

const OF_LOCKS: [&str; 11] = [
    "redlock_lock_held",
    "redlock_lock_holder_info",
    "redlock_lock_validity_seconds",
    "redlock_lock_fencing_token",
    "redlock_lock_acquired_timestamp_seconds",
    "redlock_lock_last_renew_timestamp_seconds",
    "redlock_lock_transitions_total",
    "redlock_lock_unheld_seconds_total",
    "redlock_lock_valid_until_timestamp_seconds",
    "redlock_acquisitions_total",
    "redlock_renewals_total",
];
const OTHERS: [&str; 22] = [
    "redlock_build_info",
    "redlock_log_lines_dropped_total",
    "redlock_acquire_duration_seconds",
    "redlock_renew_margin_ratio",
    "redlock_leases_ended_total",
    "redlock_takeover_duration_seconds",
    "redlock_quorum_masters",
    "redlock_quorum_masters_available",
    "redlock_quorum_masters_sealed",
    "redlock_quorum_masters_granting",
    "redlock_quorum_masters_required",
    "redlock_master_up",
    "redlock_master_sealed",
    "redlock_master_granting",
    "redlock_master_clock_offset_seconds",
    "redlock_master_info",
    "redlock_master_requests_total",
    "redlock_master_request_duration_seconds",
    "redlock_reconciles_total",
    "redlock_reconcile_duration_seconds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
];

#[tokio::test]
async fn the_metrics_have_their_names_and_values() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let replica = Replica::start("r", &folder);
    replica.wait_active("a");
    let lock = "lock_namespace=\"ns\",lock=\"a\"";
    let held = format!("{lock},cluster=\"local\"");
    let m2 = "master=\"m2\"";
    let granted = "operation=\"renew\",quorum=\"default\",vote=\"granted\"";
    let found = eventually_blocking(BOUND, "a renewal was counted", || {
        let (status, body) = replica.get("/metrics");
        assert_eq!(status, 200);
        let found = families(&body);
        let counted = |name: &str, part: &str| {
            let mut of = found.get(name).into_iter().flatten();
            let sample = of.find(|(series, _)| series.contains(part));
            sample.is_some_and(|(_, value)| *value > 0.0)
        };
        // The samples of the masters are slightly older.
        let all = counted("redlock_renewals_total", "result=\"renewed\"")
            && counted("redlock_master_requests_total", granted)
            && counted("redlock_master_up", m2)
            && counted("redlock_lock_held", &held);
        all.then_some(found).ok_or(body)
    });
    for name in OF_LOCKS.iter().chain(&OTHERS) {
        assert!(
            found.get(*name).is_some_and(|samples| !samples.is_empty()),
            "{name}"
        );
    }
    let one = |name: &str, part: &str| {
        let of = found[name].iter().find(|(series, _)| series.contains(part));
        of.unwrap_or_else(|| panic!("{name} with {part}: {:?}", found[name]))
            .1
    };
    assert_eq!(one("redlock_lock_held", &held), 1.0);
    assert_eq!(
        one(
            "redlock_lock_holder_info",
            &format!("{lock},holder=\"r\",holder_cluster=\"local\"")
        ),
        1.0
    );
    assert!((0.0..=10.0).contains(&one("redlock_lock_validity_seconds", lock)));
    let (acquired, until) = (
        one("redlock_lock_acquired_timestamp_seconds", lock),
        one("redlock_lock_valid_until_timestamp_seconds", lock),
    );
    assert!(acquired < until && until < acquired + 60.0, "{acquired} {until}");
    let quorum = "quorum=\"default\"";
    assert_eq!(one("redlock_quorum_masters", quorum), 3.0);
    assert_eq!(one("redlock_quorum_masters_required", quorum), 2.0);
    assert_eq!(one("redlock_master_up", m2), 1.0);
    assert!(one("redlock_master_requests_total", granted) >= 1.0);
    assert_eq!(one("redlock_leases_ended_total", "released"), 0.0);
}

#[tokio::test]
async fn a_takeover_after_a_release_is_counted() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut holder = Replica::start("r0", &folder);
    holder.wait_active("a");
    let counted = (1..=5).any(|round| {
        let next = Replica::start(&format!("r{round}"), &folder);
        let counted = takes_over(&mut holder, &next);
        holder = next;
        counted
    });
    assert!(counted, "no holder released its lock in time");
}

/// Ends the holder; the next replica reports how long the takeover took. Returns `false` if the holder could not
/// release its lock in time.
fn takes_over(holder: &mut Replica, next: &Replica) -> bool {
    eventually_blocking(BOUND, "the next knows the holder", || {
        let lock = next.lock("a");
        (lock["holderIdentity"] == holder.name.as_str())
            .then_some(())
            .ok_or(lock)
    });
    let standby = families(&next.get("/metrics").1);
    assert_eq!(standby["redlock_lock_held"][0].1, 0.0);
    assert!(standby["redlock_lock_holder_info"].is_empty());
    holder.child.signal(Signal::SIGTERM);
    holder.child.wait(BOUND);
    next.wait_active("a");
    if !released_in_time(&holder.child.stderr()) {
        return false;
    }
    eventually_blocking(BOUND, "the takeover was counted", || {
        let found = families(&next.get("/metrics").1);
        let taken = found["redlock_takeover_duration_seconds"]
            .iter()
            .find(|(series, _)| series.contains("_count") && series.contains("release"));
        match taken {
            Some((_, 1.0)) => Ok(()),
            other => Err(other.cloned()),
        }
    });
    true
}

#[tokio::test]
async fn the_series_of_single_locks_can_be_switched_off() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let replica = Replica::start_with("r", &folder, |c| _ = c.arg("--lock-metrics=false"));
    replica.wait_active("a");
    let found = families(&replica.get("/metrics").1);
    for name in OF_LOCKS {
        assert!(!found.contains_key(name), "{name}");
    }
    assert!(found.contains_key("redlock_quorum_masters"));
}
