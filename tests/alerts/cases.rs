//! Tests that each alert fires when it should, and is silent otherwise.

use serde_json::Value;

use crate::promtool::promtool;
use crate::shipped::{RULES, alerts, expressions, path, read};

#[test]
fn the_rules_are_accepted_without_warnings() {
    let output = promtool(&["check", "rules", "--lint=all", "--lint-fatal", RULES], "");
    assert!(output.contains("SUCCESS"), "{output}");
}

#[test]
fn each_alert_fires_and_stays_silent_as_in_its_cases() {
    let mut files = Vec::new();
    for alert in alerts() {
        let file = format!("tests/alerts/{alert}.yaml");
        let cases: Value = serde_yaml::from_str(&read(&file)).unwrap();
        let cases = cases["tests"].as_array().unwrap();
        let asked = |case: &Value| case["alert_rule_test"].as_array().unwrap().clone();
        let asked: Vec<Vec<Value>> = cases.iter().map(asked).collect();
        let fires = |asked: &Value| {
            asked["exp_alerts"]
                .as_array()
                .is_some_and(|alerts| !alerts.is_empty())
        };
        assert!(
            asked.iter().flatten().all(|asked| asked["alertname"] == *alert),
            "{file}"
        );
        assert!(
            asked.iter().any(|case| case.iter().any(fires)),
            "{file}: it never fires"
        );
        assert!(
            asked.iter().any(|case| !case.iter().any(fires)),
            "{file}: it always fires"
        );
        files.push(file);
    }
    let beside = path("tests/alerts").read_dir().unwrap();
    let beside = beside.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "yaml")
    });
    assert_eq!(beside.count(), files.len(), "a file of cases without an alert");
    let mut arguments = vec!["test", "rules"];
    arguments.extend(files.iter().map(String::as_str));
    promtool(&arguments, "");
}

#[test]
fn the_expressions_of_the_panels_are_accepted() {
    let mut rules = String::from("groups:\n- name: panels\n  rules:\n");
    for (index, (_, expression)) in expressions().iter().enumerate() {
        let expression = serde_json::to_string(expression).unwrap();
        rules.push_str(&format!(
            "  - {{record: \"expression:{index}\", expr: {expression}}}\n"
        ));
    }
    promtool(&["check", "rules"], &rules);
}
