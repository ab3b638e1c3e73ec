//! Reads the names in an expression.

use std::collections::BTreeSet;

const STARTS: [&str; 3] = ["redlock_", "redlock:", "process_"];

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Returns the metrics that an expression reads: `redlock_…`, `redlock:…`, `process_…`, and `up`.
pub fn metrics(expression: &str) -> BTreeSet<String> {
    let names = outside_of_text(expression);
    let names = names.split(|c| !is_name(c));
    let ours = names.filter(|name| *name == "up" || STARTS.iter().any(|start| name.starts_with(start)));
    ours.map(str::to_owned).collect()
}

/// Returns the labels that an expression selects, groups and matches by.
pub fn labels(expression: &str) -> BTreeSet<String> {
    let text = outside_of_text(expression);
    let mut found = BTreeSet::new();
    for (begin, end) in [("{", '}'), ("by (", ')'), ("on (", ')')] {
        for (at, _) in text.match_indices(begin) {
            let list = text[at + begin.len()..].split(end).next().unwrap();
            let names = list
                .split(',')
                .map(|part| part.trim().chars().take_while(|c| is_name(*c)).collect());
            found.extend(names.filter(|name: &String| !name.is_empty()));
        }
    }
    found
}

/// Returns the expression with each quoted text replaced by an empty one.
fn outside_of_text(expression: &str) -> String {
    expression.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

#[test]
fn names_are_found_wherever_they_stand() {
    let expression = "max by (lock, le) (rate(redlock_a_total{x=~\"redlock_no,y\",z!=\"\"}[5m])) \
                      and on (job) redlock:b:ratio > on () process_c";
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        metrics(expression),
        set(&["redlock_a_total", "redlock:b:ratio", "process_c"])
    );
    assert_eq!(labels(expression), set(&["lock", "le", "x", "z", "job"]));
}
