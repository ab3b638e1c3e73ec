use super::*;
use crate::api::target::ConditionStatus;

fn target(patch: &str) -> Target {
    serde_yaml::from_str(&format!(
        "{{name: t, action: Patch, stopSeconds: 5, ref: {{apiVersion: a/v1, kind: K, name: n}}, patch: {patch}}}"
    ))
    .unwrap()
}

fn check_all(patch: &str) -> (Option<PatchPlan>, Vec<String>) {
    let mut problems = Problems::default();
    let plan = super::patch(&mut problems, "t", &target(patch));
    let fields = problems.into_inner().into_iter().map(|problem| problem.field);
    (plan, fields.collect())
}

#[test]
fn settings_are_read() {
    let (plan, problems) = check_all(
        "{fields: [{path: /spec/suspend, active: false, standby: true}, \
         {path: /metadata/annotations/example.com~1paused, standby: \"true\"}], \
         stoppedWhen: [{path: /status/state, equals: {a: [1]}}, {condition: Synced, status: \"False\", reason: R}], \
         trustStatusWithoutGeneration: true}",
    );
    assert_eq!(problems, Vec::<String>::new());
    let path = |text| Pointer::parse(text).unwrap();
    let wanted = PatchPlan {
        fields: vec![
            FieldPlan {
                path: path("/spec/suspend"),
                active: Some(false.into()),
                standby: Some(true.into()),
            },
            FieldPlan {
                path: path("/metadata/annotations/example.com~1paused"),
                active: None,
                standby: Some("true".into()),
            },
        ],
        stopped_when: vec![
            StatusCheck::Field {
                path: path("/status/state"),
                equals: serde_json::json!({"a": [1]}),
            },
            StatusCheck::Condition {
                kind: "Synced".into(),
                status: ConditionStatus::False,
                reason: Some("R".into()),
            },
        ],
        trusts_status: true,
    };
    assert_eq!(plan, Some(wanted));
}

#[test]
fn each_rule_of_the_values_names_its_field() {
    let field = |path: &str, values: &str| format!("{{fields: [{{path: {path}{values}}}]}}");
    for (patch, wanted) in [
        // Values, which CEL cannot see.
        (field("/spec/a", ", active: 1, standby: 1"), "t.patch.fields[0].standby"),
        (field("/spec/a", ""), "t.patch.fields[0].standby"),
        (field("/spec/a", ", active: null"), "t.patch.fields[0].standby"),
        (field("/spec/a", ", active: {b: null}"), "t.patch.fields[0].active"),
        (field("/spec/a", ", standby: [{b: null}]"), "t.patch.fields[0].standby"),
        (field("/metadata/annotations/a", ", standby: true"), "t.patch.fields[0].standby"),
        (field("/spec/a", ", active: 1"), ""),
        (field("/spec/a", ", standby: 0"), ""),
        (field("/spec/a", ", active: 1, standby: \"1\""), ""),
        (field("/spec/a", ", active: {b: 1}, standby: {}"), ""),
        (
            "{fields: [{path: /spec/a, active: 1}], stoppedWhen: [{path: /status/a}]}".into(),
            "t.patch.stoppedWhen[0].equals",
        ),
        (
            "{fields: [{path: /spec/a, active: 1}], stoppedWhen: [{condition: A, status: \"True\", equals: 1}]}".into(),
            "t.patch.stoppedWhen[0].equals",
        ),
    ] {
        let wanted: Vec<&str> = Some(wanted).into_iter().filter(|field| !field.is_empty()).collect();
        assert_eq!(check_all(&patch).1, wanted, "{patch}");
    }
}

#[test]
fn value_that_is_too_long_is_named_with_its_length_and_the_limit() {
    let long = |length: usize| serde_json::json!({"a": ["x".repeat(length - r#"{"a":[""]}"#.len())]});
    for (length, refused) in [(VALUE_LIMIT, false), (VALUE_LIMIT + 1, true), (1_200_000, true)] {
        let mut target = target("{fields: [{path: /spec/a}], stoppedWhen: [{path: /status/a}]}");
        let patch = target.patch.as_mut().unwrap();
        patch.fields[0].active = Some(long(length));
        patch.stopped_when[0].equals = Some(long(length));
        let mut problems = Problems::default();
        super::patch(&mut problems, "t", &target);
        let found: Vec<String> = problems.into_inner().iter().map(ToString::to_string).collect();
        let text = |field: &str| {
            format!("t.patch.{field}: {length} bytes of JSON are too much: use at most 4096 bytes")
        };
        let wanted = if refused {
            vec![text("fields[0].active"), text("stoppedWhen[0].equals")]
        } else {
            Vec::new()
        };
        assert_eq!(found, wanted);
    }
}
