use super::*;

fn check(candidates: Candidates, yaml: &str) -> (Vec<TargetPlan>, Vec<String>) {
    let spec = format!("{{quorumRef: {{name: q}}, candidates: {candidates:?}, targets: {yaml}}}");
    let spec: LeaderLockSpec = serde_yaml::from_str(&spec).unwrap();
    let mut problems = Problems::default();
    let plans = targets(&mut problems, &spec, &Graces::default());
    (
        plans,
        problems.into_inner().iter().map(|p| p.field.clone()).collect(),
    )
}

fn deployment(more: &str) -> String {
    format!("[{{name: t, action: Scale, ref: {{apiVersion: apps/v1, kind: Deployment, name: d}}{more}}}]")
}

fn cronjob(action: &str, more: &str) -> String {
    format!("[{{name: t, action: {action}, ref: {{apiVersion: batch/v1, kind: CronJob, name: c}}{more}}}]")
}

#[test]
fn defaults_are_filled_in() {
    let (plans, problems) = check(Candidates::Operator, &deployment(""));
    assert_eq!(problems, Vec::<String>::new());
    let TargetWork::Scale {
        active_replicas,
        standby_replicas,
        ..
    } = plans[0].work
    else {
        panic!()
    };
    assert_eq!(
        (active_replicas, standby_replicas, plans[0].stop),
        (1, 0, Duration::from_secs(35))
    );

    let (plans, _) = check(Candidates::Operator, &cronjob("OncePerSchedule", ""));
    let TargetWork::OncePerSchedule { max_slot_age, .. } = plans[0].work else {
        panic!()
    };
    assert_eq!(
        (max_slot_age, plans[0].stop),
        (Duration::from_secs(3_600), Duration::ZERO)
    );
    assert_eq!(plans[0].work.action(), Action::OncePerSchedule);
}

#[test]
fn each_rule_names_its_field() {
    let pods = "labelPods: {selector: {matchLabels: {app: x}}}";
    let table = [
        (deployment(", stopSeconds: 0"), ""),
        (deployment(", stopSeconds: 86400"), ""),
        (deployment(", stopSeconds: -1"), "spec.targets[0].stopSeconds"),
        (deployment(", stopSeconds: 86401"), "spec.targets[0].stopSeconds"),
        (deployment(", scale: {activeReplicas: 3, standbyReplicas: 2}"), ""),
        (
            deployment(", scale: {activeReplicas: 0}"),
            "spec.targets[0].scale.activeReplicas",
        ),
        (
            deployment(", scale: {standbyReplicas: 1}"),
            "spec.targets[0].scale.standbyReplicas",
        ),
        (
            deployment(", scale: {standbyReplicas: -1}"),
            "spec.targets[0].scale.standbyReplicas",
        ),
        (
            deployment(", oncePerSchedule: {}"),
            "spec.targets[0].oncePerSchedule",
        ),
        (deployment(&format!(", {pods}")), "spec.targets[0].labelPods"),
        (cronjob("Suspend", ""), ""),
        (cronjob("Suspend", ", scale: {}"), "spec.targets[0].scale"),
        (
            cronjob("OncePerSchedule", ", oncePerSchedule: {maxSlotAgeSeconds: 1}"),
            "",
        ),
        (
            cronjob("OncePerSchedule", ", oncePerSchedule: {maxSlotAgeSeconds: 0}"),
            "spec.targets[0].oncePerSchedule.maxSlotAgeSeconds",
        ),
        (
            cronjob("OncePerSchedule", ", stopSeconds: 5"),
            "spec.targets[0].stopSeconds",
        ),
        ("[{name: t, action: Scale}]".into(), "spec.targets[0].ref"),
        (
            "[{name: t, action: Suspend, ref: {apiVersion: apps/v1, kind: Job, name: j}}]".into(),
            "spec.targets[0].ref",
        ),
        (
            "[{name: t, action: OncePerSchedule, ref: {apiVersion: batch/v1, kind: Job, name: j}}]".into(),
            "spec.targets[0].ref",
        ),
        (
            "[{name: t, action: Scale, ref: {apiVersion: a/v1, kind: K, name: N}}]".into(),
            "spec.targets[0].ref.name",
        ),
        (
            "[{name: t, action: Scale, ref: {apiVersion: '', kind: K, name: n}}]".into(),
            "spec.targets[0].ref.apiVersion",
        ),
        (
            "[{name: t, action: Scale, ref: {apiVersion: a, kind: '', name: n}}]".into(),
            "spec.targets[0].ref.kind",
        ),
        (format!("[{{name: t, action: LabelPods, {pods}}}]"), ""),
        (
            format!("[{{name: T, action: LabelPods, {pods}}}]"),
            "spec.targets[0].name",
        ),
        (
            format!("[{{name: t, action: LabelPods, {pods}, ref: {{apiVersion: a, kind: k, name: n}}}}]"),
            "spec.targets[0].ref",
        ),
        (
            "[{name: t, action: LabelPods}]".into(),
            "spec.targets[0].labelPods",
        ),
        (
            "[{name: t, action: LabelPods, labelPods: {selector: {}}}]".into(),
            "spec.targets[0].labelPods.selector",
        ),
        (
            format!("[{{name: t, action: LabelPods, {pods}}}, {{name: t, action: LabelPods, {pods}}}]"),
            "spec.targets[1].name",
        ),
    ];
    for (yaml, field) in table {
        let wanted: Vec<&str> = Some(field).into_iter().filter(|f| !f.is_empty()).collect();
        assert_eq!(check(Candidates::Operator, &yaml).1, wanted, "{yaml}");
    }
}

#[test]
fn agents_only_label_pods() {
    let pods = "[{name: t, action: LabelPods, labelPods: {selector: {matchLabels: {app: x}}}}]";
    assert_eq!(check(Candidates::Agents, pods).1, Vec::<String>::new());
    assert_eq!(
        check(Candidates::Agents, &deployment("")).1,
        ["spec.targets[0].action"]
    );
}

#[test]
fn the_number_of_targets_is_limited() {
    let list = |n: usize| {
        let one =
            |i| format!("{{name: t{i}, action: Suspend, ref: {{apiVersion: batch/v1, kind: Job, name: j}}}}");
        format!("[{}]", (0..n).map(one).collect::<Vec<_>>().join(", "))
    };
    assert_eq!(check(Candidates::Operator, &list(32)).1, Vec::<String>::new());
    assert_eq!(check(Candidates::Operator, &list(33)).1, ["spec.targets"]);
}
