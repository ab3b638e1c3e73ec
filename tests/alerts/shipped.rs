//! Reads the rules and the dashboard as shipped.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub const RULES: &str = "charts/redlock-operator/files/alerts.yaml";
pub const DASHBOARD: &str = "charts/redlock-operator/files/dashboard.json";

pub fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

pub fn read(below: &str) -> String {
    fs::read_to_string(path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// Returns all rules, recording rules and alerts.
pub fn rules() -> Vec<Value> {
    let file: Value = serde_yaml::from_str(&read(RULES)).unwrap();
    let groups = file["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

/// Returns the names of the alerts, each once.
pub fn alerts() -> BTreeSet<String> {
    named("alert")
}

/// Returns the names that the rules record.
pub fn recorded() -> BTreeSet<String> {
    named("record")
}

fn named(kind: &str) -> BTreeSet<String> {
    let rules = rules();
    let names = rules.iter().filter_map(|rule| rule[kind].as_str());
    names.map(str::to_owned).collect()
}

pub fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Returns every expression of rules, panels and runbooks with its owner, with values for the variables of panels.
pub fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for rule in rules() {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
        found.push((name.to_owned(), rule["expr"].as_str().unwrap().to_owned()));
    }
    for panel in panels() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "5m");
            found.push((format!("panel {title}"), expression));
        }
    }
    for alert in alerts() {
        let page = read(&format!("docs/runbooks/{alert}.md"));
        for block in page.split("```promql\n").skip(1) {
            let lines = block.split("```").next().unwrap().lines();
            found.extend(lines.map(|line| (format!("the page of {alert}"), line.to_owned())));
        }
    }
    found
}
