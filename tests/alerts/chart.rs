//! Tests the alerts as the chart renders them.

use std::process::Command;

use serde_json::Value;

use crate::common::tools;
use crate::shipped::{DASHBOARD, RULES, read};

/// Renders one object of the chart, with values in the form of `--set`.
fn rendered(template: &str, values: &str) -> Value {
    let output = Command::new(tools::helm())
        .args([
            "template",
            "redlock",
            "charts/redlock-operator",
            "--namespace",
            "redlock",
        ])
        .args(["--show-only", template, "--set", values])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_yaml::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_rule_object_holds_the_rules_as_they_are() {
    let template = "templates/prometheusrule.yaml";
    let rule = rendered(
        template,
        "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus",
    );
    assert_eq!(rule["kind"], "PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let file: Value = serde_yaml::from_str(&read(RULES)).unwrap();
    assert_eq!(rule["spec"], file);

    let own = "prometheusRule.enabled=true,prometheusRule.runbookUrl=https://wiki.test/runbooks/";
    let rule = rendered(template, own);
    let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    for rule in rules.iter().filter(|rule| rule["alert"].is_string()) {
        let wanted = format!(
            "https://wiki.test/runbooks/{}.md",
            rule["alert"].as_str().unwrap()
        );
        assert_eq!(rule["annotations"]["runbook_url"], wanted);
    }
}

#[test]
fn the_config_map_holds_the_dashboard_as_it_is() {
    let map = rendered("templates/dashboard.yaml", "dashboard.enabled=true");
    assert_eq!(map["kind"], "ConfigMap");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let text = map["data"]["redlock-operator.json"].as_str().unwrap();
    assert_eq!(text, read(DASHBOARD).trim());
}
