use super::*;

fn object(targets: &str) -> LeaderLock {
    serde_yaml::from_str(&format!(
        "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
         spec: {{quorumRef: {{name: q}}, targets: [{targets}]}}}}"
    ))
    .unwrap()
}

fn target(name: &str, more: &str) -> String {
    format!("{{name: {name}, ref: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}, {more}}},")
}

fn read(name: &str, seconds: Option<u64>) -> Read {
    Read {
        key: ObjectKey {
            namespace: "n".into(),
            name: "l".into(),
        },
        reference: TargetRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: name.into(),
        },
        state: match seconds {
            Some(seconds) => TemplateState::Present(Content {
                grace: Some(Duration::from_secs(seconds).into()),
                rollout: None,
            }),
            None => TemplateState::Missing,
        },
    }
}

#[tokio::test]
async fn only_needed_templates_are_read_and_undeclared_ones_are_forgotten() {
    let mut templates = Templates::default();
    let follow = |templates: &mut Templates, object: &LeaderLock| {
        let (begun, _) = templates.follow(object);
        let begun = begun.into_iter().map(|reference| reference.name);
        begun.collect::<Vec<_>>()
    };
    let a = target("a", "action: Scale");
    let rest = target("b", "action: Scale, stopSeconds: 5, scale: {activeReplicas: 2}")
        + &target("c", "action: OncePerSchedule");
    let both = object(&format!("{a}{rest}{}", target("d", "action: Suspend")));
    assert_eq!(follow(&mut templates, &both), ["a", "d"]);
    assert_eq!(follow(&mut templates, &both), [""; 0]);
    assert!(templates.awaited());
    assert!(templates.take(&read("a", Some(2))));
    assert!(!templates.take(&read("a", Some(2))), "no news");
    assert!(templates.take(&read("a", None)), "it is gone");
    assert!(!templates.take(&read("a", None)), "no news");
    assert!(!templates.take(&read("b", Some(2))), "not asked for");
    assert!(templates.awaited());
    assert!(
        templates.take(&read("d", None)),
        "that it cannot be read is an answer"
    );
    assert!(!templates.awaited());
    let known = |name, seconds: u64| {
        let read = read(name, Some(seconds));
        [(read.reference, Duration::from_secs(seconds))]
            .into_iter()
            .collect()
    };
    let missing = |names: &[&str]| {
        let missing = names
            .iter()
            .map(|name| (read(name, None).reference, AwaitedTemplate::Missing));
        missing.collect::<BTreeMap<_, _>>()
    };
    let last: Graces = known("a", 2);
    assert_eq!(templates.graces(), last.clone().awaiting(missing(&["a", "d"])));
    assert!(templates.take(&read("a", Some(2))), "it exists again");
    assert_eq!(templates.graces(), last.awaiting(missing(&["d"])));
    assert!(templates.take(&Read {
        state: TemplateState::Unreadable,
        ..read("d", None)
    }));
    assert_eq!(templates.graces(), known("a", 2), "nothing is awaited");

    assert_eq!(follow(&mut templates, &object(&rest)), [""; 0]);
    assert_eq!(templates.graces(), Graces::default());
    assert_eq!(follow(&mut templates, &object(&a)), ["a"]);
    assert!(templates.awaited());
}

#[tokio::test]
async fn a_rollout_is_judged_of_deployments_with_one_active_replica() {
    let of = |more: &str, rollouts: &[(&str, Option<Rollout>)]| {
        let mut templates = Templates::default();
        let object = object(more);
        templates.follow(&object);
        for (name, rollout) in rollouts {
            let mut read = read(name, None);
            read.state = TemplateState::Present(Content {
                grace: None,
                rollout: *rollout,
            });
            templates.take(&read);
        }
        templates
    };
    let given = "action: Scale, stopSeconds: 5";
    let one = target("a", given);
    let both = target("a", given) + &target("b", "action: Scale, scale: {activeReplicas: 1}");
    let (surges, replaces) = (Some(Rollout::Surges), Some(Rollout::Replaces));
    let found = |names: &[&str]| {
        let names = names.iter().map(|name| format!("Deployment {name}"));
        Surges::Of(names.collect())
    };
    assert_eq!(of(&one, &[]).surges(), Surges::Unknown);
    assert!(
        !of(&one, &[]).awaited(),
        "the lock can be used without: its stop time is given"
    );
    assert_eq!(of(&one, &[("a", None)]).surges(), Surges::Unknown);
    assert_eq!(of(&one, &[("a", replaces)]).surges(), Surges::Never);
    assert_eq!(of(&one, &[("a", surges)]).surges(), found(&["a"]));
    assert_eq!(
        of(&one, &[("a", surges), ("a", None)]).surges(),
        found(&["a"]),
        "it is gone"
    );
    assert_eq!(
        of(&one, &[("a", surges), ("a", replaces)]).surges(),
        Surges::Never
    );
    assert_eq!(of(&both, &[("a", replaces)]).surges(), Surges::Unknown);
    assert_eq!(of(&both, &[("b", surges)]).surges(), found(&["b"]));
    assert_eq!(
        of(&both, &[("a", surges), ("b", surges)]).surges(),
        found(&["a", "b"])
    );
    for none in [
        target("a", "action: Scale, scale: {activeReplicas: 2}"),
        target("a", "action: Scale").replace("Deployment", "StatefulSet"),
        target("a", "action: Suspend"),
    ] {
        let surges = of(&none, &[("a", surges)]).surges();
        assert_eq!(surges, Surges::NotJudged, "{none}");
    }
}
