//! Tests the notes after an installation.

use crate::render::{NAMESPACE, chart, helm};

pub fn notes(values: &[&str]) -> String {
    let chart = chart();
    let fixed = [
        "install",
        "redlock",
        chart.to_str().unwrap(),
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
    ];
    let flags: Vec<String> = values.iter().map(|value| format!("--set={value}")).collect();
    let flags = flags.iter().map(String::as_str);
    let output = helm(&fixed.into_iter().chain(flags).collect::<Vec<_>>()).unwrap();
    output.split_once("\nNOTES:\n").expect("notes").1.to_owned()
}

/// Reports whether the notes have this warning, with these values.
pub fn warns(of: &str, values: &[&str]) -> bool {
    let notes = notes(values);
    notes
        .split_once("\nWarnings:\n")
        .is_some_and(|(_, warnings)| warnings.contains(of))
}

#[test]
fn a_first_lock_can_be_pasted() {
    let notes = notes(&[
        "quorums.masters-eu.masters[0].name=m0",
        "watchNamespaces={billing}",
    ]);
    let (_, rest) = notes.split_once("<<LOCK\n").unwrap();
    let (manifest, _) = rest.split_once("\n  LOCK").unwrap();
    let lock: redlock::api::LeaderLock = serde_yaml::from_str(manifest).unwrap();
    assert_eq!(lock.spec.quorum_ref.name, "masters-eu");
    assert_eq!(lock.metadata.namespace.as_deref(), Some("billing"));
    assert!(notes.contains("kubectl get leaderlock") && !notes.contains("There is no RedisQuorum"));
}

#[test]
fn every_warning_has_values_that_trigger_it() {
    let long = [
        "quorums.a.maxLeaseDurationSeconds=120",
        "quorums.a.masters[0].name=m0",
    ];
    for (of, values) in [
        ("replicas is 1", &["replicas=1"][..]),
        ("targetKinds is empty", &["replicas=2"]),
        ("clusterName is \"local\"", &["replicas=2"]),
        ("resources.limits.cpu is set", &["resources.limits.cpu=1"]),
        ("may need 250 s", &long),
        ("drain.enabled is false", &["drain.enabled=false"]),
        ("on port 8080", &["networkPolicy.enabled=false"]),
        ("not for production", &["quickstart.enabled=true"]),
        (
            "quickstart.persistence.enabled is false",
            &["quickstart.enabled=true"],
        ),
    ] {
        assert!(warns(of, values), "{values:?} should bring out: {of}");
    }
}

#[test]
fn no_warnings_for_a_sound_configuration() {
    let values = [
        "clusterName=eu-1",
        "targetKinds[0].group=apps",
        "targetKinds[0].resource=deployments",
        "quorums.default.masters[0].name=m0",
    ];
    let notes = notes(&values);
    assert!(!notes.contains("Warnings"), "{notes}");
}
