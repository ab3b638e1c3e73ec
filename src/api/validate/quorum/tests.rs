use super::*;
use crate::api::redis_quorum::FirstStart;

fn quorum(spec: &str) -> RedisQuorum {
    let head = "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {name: default}\nspec:\n";
    serde_yaml::from_str(&format!("{head}{spec}")).unwrap()
}

fn with_urls(urls: &[&str]) -> RedisQuorum {
    let masters: Vec<String> = urls
        .iter()
        .enumerate()
        .map(|(i, url)| format!("  - {{name: m{i}, url: '{url}'}}\n"))
        .collect();
    quorum(&format!("  masters:\n{}", masters.concat()))
}

fn with(more: &str) -> RedisQuorum {
    quorum(&format!(
        "  masters: [{{name: a, url: redis://a}}, {{name: b, url: redis://b}}, {{name: c, url: redis://c}}]\n{more}"
    ))
}

/// Field and shown text of every problem.
fn problems(object: &RedisQuorum) -> Vec<String> {
    validate_quorum(object)
        .err()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn defaults_are_filled_in() {
    let plan = validate_quorum(&with("")).unwrap();
    assert_eq!(
        (plan.name.as_str(), plan.key_prefix.as_str()),
        ("default", "redlock")
    );
    assert_eq!(plan.longest_lease, Duration::from_secs(60));
    assert_eq!(
        (plan.command_timeout, plan.first_start),
        (Duration::from_millis(500), FirstStart::Wait)
    );
    assert!(!plan.needs_credentials && !plan.needs_tls);
    assert_eq!(plan.majority(), 2);
    assert_eq!(plan.masters[1].address, "b:6379");
}

#[test]
fn given_values_are_kept() {
    let plan = validate_quorum(&quorum(
        "  masters:
  - {name: a, url: 'rediss://a:1/3', failureDomain: eu-1a}
  - {name: b, url: redis://b}
  - {name: c, url: redis://c}
  auth: {secretRef: {name: redis, namespace: infra}}
  tls: {secretRef: {name: redis-tls, namespace: infra}}
  keyPrefix: team-a/locks
  commandTimeoutMilliseconds: 250
  maxLeaseDurationSeconds: 120
  firstStart: Immediate
  sharedLockNames: [{prefix: shared/, namespaces: [a, b]}]
",
    ))
    .unwrap();
    assert!(plan.needs_credentials && plan.needs_tls);
    assert_eq!(plan.command_timeout, Duration::from_millis(250));
    assert_eq!(plan.longest_lease, Duration::from_secs(120));
    assert_eq!(plan.first_start, FirstStart::Immediate);
    assert_eq!(
        (plan.key_prefix.as_str(), plan.shared_lock_names.len()),
        ("team-a/locks", 1)
    );
    assert_eq!(plan.masters[0].failure_domain.as_deref(), Some("eu-1a"));
    assert_eq!(plan.masters[0].url, "rediss://a:1/3");
}

#[test]
fn only_1_3_5_and_7_masters_form_a_quorum() {
    for n in 0..=9 {
        let urls: Vec<String> = (0..n).map(|i| format!("redis://h{i}")).collect();
        let found = problems(&with_urls(&urls.iter().map(String::as_str).collect::<Vec<_>>()));
        if [1, 3, 5, 7].contains(&n) {
            assert_eq!(found, Vec::<String>::new(), "{n} masters");
        } else {
            let wanted = format!(
                "spec.masters: {n} is not a number of masters that can form a quorum: declare 1, 3, 5 or 7"
            );
            assert_eq!(found, [wanted]);
        }
    }
}

#[test]
fn one_server_is_not_two_masters() {
    let same = [
        ["redis://h:6379", "redis://H"],
        ["redis://h", "rediss://h"],
        ["redis://h/0", "redis://h/1"],
        ["redis://[::1]", "redis://[0::1]"],
    ];
    for [first, second] in same {
        let found = problems(&with_urls(&[first, "redis://other", second]));
        assert_eq!(found.len(), 1, "{first} {second}: {found:?}");
        assert!(found[0].starts_with("spec.masters[2].url: "), "{found:?}");
        assert!(found[0].contains("the same server as master m0"), "{found:?}");
    }
    assert_eq!(
        problems(&with_urls(&["redis://h:1", "redis://h:2", "redis://h:3"])),
        Vec::<String>::new()
    );
}

#[test]
fn all_problems_show_at_once() {
    let found = problems(&quorum(
        "  masters:
  - {name: a, url: 'redis://:hunter2@a'}
  - {name: a, url: 'redis://b'}
  - {name: C, url: 'c'}
  - {name: d, url: 'redis://d', failureDomain: ''}
  keyPrefix: 'red*'
  commandTimeoutMilliseconds: 9
  maxLeaseDurationSeconds: -1
",
    ));
    let fields: Vec<&str> = found
        .iter()
        .filter_map(|p| p.split_once(": "))
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.masters",
            "spec.masters[0].url",
            "spec.masters[1].name",
            "spec.masters[2].name",
            "spec.masters[2].url",
            "spec.masters[3].failureDomain",
            "spec.keyPrefix",
            "spec.commandTimeoutMilliseconds",
            "spec.maxLeaseDurationSeconds",
        ]
    );
    assert!(!found.concat().contains("hunter2"), "{found:?}");
    assert!(found.iter().all(|p| !p.contains('\n')), "{found:?}");
}

#[test]
fn each_rule_refuses_just_beyond_its_edge() {
    let table = [
        ("  keyPrefix: ''\n", Some("spec.keyPrefix")),
        ("  keyPrefix: a|b\n", Some("spec.keyPrefix")),
        ("  keyPrefix: redlock:team-b\n", Some("spec.keyPrefix")),
        ("  keyPrefix: a\n", None),
        ("  commandTimeoutMilliseconds: 10\n", None),
        ("  commandTimeoutMilliseconds: 2000\n", None),
        (
            "  commandTimeoutMilliseconds: 2001\n",
            Some("spec.commandTimeoutMilliseconds"),
        ),
        (
            "  maxLeaseDurationSeconds: 1\n",
            Some("spec.maxLeaseDurationSeconds"),
        ),
        ("  maxLeaseDurationSeconds: 2\n", None),
        ("  maxLeaseDurationSeconds: 86400\n", None),
        (
            "  maxLeaseDurationSeconds: 86401\n",
            Some("spec.maxLeaseDurationSeconds"),
        ),
        (
            "  maxLeaseDurationSeconds: 9223372036854775807\n",
            Some("spec.maxLeaseDurationSeconds"),
        ),
        ("  tls: {secretRef: {name: x, namespace: y}}\n", Some("spec.tls")),
        (
            "  auth: {secretRef: {name: X, namespace: y}}\n",
            Some("spec.auth.secretRef.name"),
        ),
        (
            "  auth: {secretRef: {name: x, namespace: y.z}}\n",
            Some("spec.auth.secretRef.namespace"),
        ),
        (
            "  sharedLockNames: [{prefix: s, namespaces: [a]}]\n",
            Some("spec.sharedLockNames[0].prefix"),
        ),
        (
            "  sharedLockNames: [{prefix: /, namespaces: [a]}]\n",
            Some("spec.sharedLockNames[0].prefix"),
        ),
        (
            "  sharedLockNames: [{prefix: _r/, namespaces: [a]}]\n",
            Some("spec.sharedLockNames[0].prefix"),
        ),
        (
            "  sharedLockNames: [{prefix: s/, namespaces: []}]\n",
            Some("spec.sharedLockNames[0].namespaces"),
        ),
        (
            "  sharedLockNames: [{prefix: s/, namespaces: [a, B]}]\n",
            Some("spec.sharedLockNames[0].namespaces[1]"),
        ),
    ];
    for (more, field) in table {
        let found = validate_quorum(&with(more)).err().unwrap_or_default();
        let fields: Vec<&str> = found.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{more}");
    }
}

#[test]
fn a_quorum_without_a_name_is_refused() {
    let mut object = with("");
    object.metadata.name = None;
    assert_eq!(validate_quorum(&object).unwrap_err()[0].field, "metadata.name");
}
