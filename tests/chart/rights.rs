//! Tests the rights of the operator, by values.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::render::{NAMESPACE, of_kind, one, render, render_file, try_render, values_files};

/// A right: namespace (`None` for all namespaces), group, resource and verb.
type Right = (Option<String>, String, String, String);

/// Returns the rights of the operator's own ServiceAccount.
fn rights(objects: &[Value]) -> BTreeSet<Right> {
    let account = &one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
    let mut all = BTreeSet::new();
    for (bindings, roles) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        for binding in of_kind(objects, bindings) {
            if &binding["subjects"][0]["name"] != account {
                continue;
            }
            let (namespace, name) = (&binding["metadata"]["namespace"], &binding["roleRef"]["name"]);
            let role = of_kind(objects, roles).into_iter().find(|role| {
                &role["metadata"]["name"] == name && &role["metadata"]["namespace"] == namespace
            });
            let role = role.unwrap_or_else(|| panic!("{name} in {namespace} is bound and not there"));
            for rule in texts_of(&role["rules"]) {
                for group in strings(&rule["apiGroups"]) {
                    for resource in strings(&rule["resources"]) {
                        for verb in strings(&rule["verbs"]) {
                            let namespace = namespace.as_str().map(str::to_owned);
                            all.insert((namespace, group.clone(), resource.clone(), verb));
                        }
                    }
                }
            }
        }
    }
    all
}

fn texts_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> Vec<String> {
    texts_of(value)
        .iter()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

fn everywhere(objects: &[Value]) -> BTreeSet<String> {
    let all = rights(objects).into_iter();
    all.filter(|right| right.0.is_none())
        .map(|(_, _, resource, _)| resource)
        .collect()
}

#[test]
fn nothing_is_granted_by_a_star_and_no_secret_is_read_everywhere() {
    for file in values_files() {
        for (namespace, group, resource, verb) in rights(&render_file(&file)) {
            let right = format!("{}: {namespace:?} {group}/{resource} {verb}", file.display());
            assert!(![&group, &resource, &verb].contains(&&"*".to_owned()), "{right}");
            assert!(resource != "secrets" || namespace.is_some(), "{right}");
            assert!(!matches!(&*verb, "escalate" | "bind" | "impersonate"), "{right}");
        }
    }
}

#[test]
fn kinds_are_granted_one_by_one() {
    let none = everywhere(&render(&[]));
    assert!(
        none.iter()
            .all(|resource| !resource.contains("deployments") && resource != "pods"),
        "{none:?}"
    );
    let deployments = everywhere(&render(&[
        "targetKinds[0].group=apps",
        "targetKinds[0].resource=deployments",
    ]));
    let more: Vec<&String> = deployments.difference(&none).collect();
    assert_eq!(more, ["deployments", "deployments/scale", "pods"]);
}

#[test]
fn fields_are_granted_by_their_resource_and_passed_to_the_operator() {
    let fields = [
        "targetFields[0].group=kustomize.toolkit.fluxcd.io,targetFields[0].resource=kustomizations",
        "targetFields[0].path=/spec/suspend",
        "targetFields[1].group=kustomize.toolkit.fluxcd.io,targetFields[1].resource=kustomizations",
        "targetFields[1].path=/spec/prune",
        "targetFields[2].group=,targetFields[2].resource=services,targetFields[2].path=/spec/selector",
    ];
    let objects = render(&fields);
    let more: Vec<String> = rights(&objects)
        .difference(&rights(&render(&[])))
        .map(|(_, group, resource, verb)| format!("{resource}.{group} {verb}"))
        .collect();
    let of = |resource: &str| ["get", "list", "patch", "watch"].map(|verb| format!("{resource} {verb}"));
    let wanted = [of("services."), of("kustomizations.kustomize.toolkit.fluxcd.io")].concat();
    assert_eq!(more, wanted);
    let containers = &one(&objects, "Deployment")["spec"]["template"]["spec"]["containers"];
    let variables = containers[0]["env"].as_array().unwrap().iter();
    let passed: Vec<&Value> = variables
        .filter(|variable| variable["name"] == "REDLOCK_TARGET_FIELDS")
        .map(|variable| &variable["value"])
        .collect();
    let flux = "kustomizations.kustomize.toolkit.fluxcd.io:";
    assert_eq!(
        passed,
        [&format!(
            "{flux}/spec/suspend,{flux}/spec/prune,services:/spec/selector"
        )]
    );
}

#[test]
fn fields_of_resources_that_carry_rights_or_run_code_are_refused() {
    for (group, resource) in [
        ("rbac.authorization.k8s.io", "roles"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apps", "deployments"),
        ("batch", "cronjobs"),
        ("redlock.dev", "leaderlocks"),
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("", "pods"),
    ] {
        for more in ["", ",rbac.create=false"] {
            let field = format!(
                "--set=targetFields[0].group={group},targetFields[0].resource={resource},targetFields[0].path=/spec/x{more}"
            );
            let error = try_render(&[&field]).map(|_| ()).expect_err(resource);
            assert!(
                error.contains("never switches") && error.contains(resource),
                "{error}"
            );
        }
    }
}

#[test]
fn with_namespaces_only_cluster_scoped_rights_are_granted_everywhere() {
    let objects = render(&[
        "watchNamespaces={billing,default,redlock}",
        "targetKinds[0].group=batch",
        "targetKinds[0].resource=cronjobs",
    ]);
    assert_eq!(
        everywhere(&objects).into_iter().collect::<Vec<_>>(),
        ["namespaces", "redisquorums", "redisquorums/status"]
    );
    let all = rights(&objects);
    for namespace in ["billing", "default", NAMESPACE] {
        for (group, resource, verb) in [
            ("redlock.dev", "leaderlocks", "patch"),
            ("batch", "cronjobs", "patch"),
        ] {
            let right = (
                Some(namespace.to_owned()),
                group.into(),
                resource.into(),
                verb.into(),
            );
            assert!(all.contains(&right), "{right:?}");
        }
    }
    let elsewhere = all.iter().filter(|right| right.0.as_deref() == Some("default"));
    let events = elsewhere.filter(|right| right.2 == "events").count();
    assert_eq!(events, 2, "those of a RedisQuorum");
}

#[test]
fn secrets_are_read_in_the_configured_namespaces() {
    let readable = |values: &[&str]| -> BTreeSet<String> {
        let all = rights(&render(values)).into_iter();
        all.filter(|right| right.2 == "secrets")
            .filter_map(|right| right.0)
            .collect()
    };
    assert_eq!(readable(&[]), BTreeSet::from([NAMESPACE.to_owned()]));
    assert_eq!(
        readable(&["secretNamespaces={data}"]),
        BTreeSet::from(["data".to_owned()])
    );
}

#[test]
fn locks_belong_to_the_roles_of_a_namespace() {
    let objects = render(&[]);
    let aggregated = |to: &str| -> BTreeSet<(String, String)> {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        let roles = of_kind(&objects, "ClusterRole");
        let roles = roles
            .into_iter()
            .filter(|role| role["metadata"]["labels"][&label] == "true");
        let rules = roles.flat_map(|role| texts_of(&role["rules"]));
        rules
            .flat_map(|rule| {
                let resources = strings(&rule["resources"]);
                let verbs = strings(&rule["verbs"]);
                resources
                    .into_iter()
                    .flat_map(move |of| verbs.clone().into_iter().map(move |verb| (of.clone(), verb)))
            })
            .collect()
    };
    let has =
        |to, resource: &str, verb: &str| aggregated(to).contains(&(resource.to_owned(), verb.to_owned()));
    assert!(has("view", "leaderlocks", "list") && has("view", "redisquorums", "get"));
    assert!(!has("view", "leaderlocks", "patch"));
    assert!(has("edit", "leaderlocks", "patch") && !has("edit", "redisquorums", "patch"));
    assert!(has("admin", "redisquorums", "patch"));
    assert!(of_kind(&render(&["rbac.aggregate=false"]), "ClusterRole").len() == 1);
}

#[test]
fn tokens_are_reviewed_only_where_they_are_needed() {
    let reviews = |values: &[&str]| -> Vec<String> {
        let all = rights(&render(values)).into_iter();
        let all = all.filter(|(_, group, ..)| group.starts_with("auth"));
        all.map(|(namespace, _, resource, verb)| {
            assert_eq!(namespace, None);
            format!("{verb} {resource}")
        })
        .collect()
    };
    assert_eq!(reviews(&[]), Vec::<String>::new());
    assert_eq!(reviews(&["metrics.localOnly=true"]), Vec::<String>::new());
    assert_eq!(
        reviews(&["metrics.requireToken=true"]),
        ["create tokenreviews", "create subjectaccessreviews"]
    );
}
