//! Tests that `docs/protocol.md` has a trace and a check for each rule, and that every check that it names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{ROOT, collect, sources};

struct Rule<'a> {
    number: &'a str,
    text: &'a str,
}

impl Rule<'_> {
    /// Returns the names in backticks after `Held by`.
    fn checks(&self) -> Vec<&str> {
        let held = self.text.split_once("Held by:").map_or("", |(_, held)| held);
        held.split('`').skip(1).step_by(2).collect()
    }
}

fn rules(page: &str) -> Vec<Rule<'_>> {
    let rule = |part| -> Option<Rule<'_>> {
        let (number, rest): (&str, &str) = str::split_once(part, "**")?;
        let end = rest.find("\n\n").unwrap_or(rest.len());
        Some(Rule {
            number,
            text: &rest[..end],
        })
    };
    page.split("\n- **P-").skip(1).filter_map(rule).collect()
}

/// Returns the source of all tests, including those inside the packages.
fn tests() -> String {
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["src", "crates", "tests"] {
        collect(&Path::new(ROOT).join(folder), &mut paths);
    }
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.collect::<Vec<_>>().join("\n")
}

fn exists(check: &str, tests: &str) -> bool {
    if check.contains('/') {
        return Path::new(ROOT).join(check).exists();
    }
    let function = tests.contains(&format!("fn {check}("));
    // Entries of the macro that declares the tests of planted faults.
    function || tests.contains(&format!("    {check}: "))
}

#[test]
fn every_rule_of_the_protocol_has_a_trace_and_checks_that_exist() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/protocol.md")).unwrap();
    let (rules, tests) = (rules(&page), tests());
    assert!(rules.len() > 80, "{} rules", rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let number = rule.number;
        assert_eq!(
            number,
            (index + 1).to_string(),
            "rules are numbered in their order"
        );
        assert!(rule.text.contains("Trace:"), "P-{number} names no trace");
        let checks = rule.checks();
        assert!(!checks.is_empty(), "P-{number} names no check");
        let missing: Vec<_> = checks
            .into_iter()
            .filter(|check| !exists(check, &tests))
            .collect();
        assert!(
            missing.is_empty(),
            "P-{number} names checks that do not exist: {missing:?}"
        );
    }
}

/// Returns the numbers of the rules that a text cites, as in `(P-17, P-26)`.
fn cited(text: &str) -> BTreeSet<usize> {
    let digits = |rest: &str| -> String { rest.chars().take_while(char::is_ascii_digit).collect() };
    let citations = text.match_indices("P-");
    let whole = citations.filter(|(at, _)| !text[..*at].ends_with(char::is_alphanumeric));
    whole
        .filter_map(|(at, _)| digits(&text[at + 2..]).parse().ok())
        .collect()
}

#[test]
fn every_rule_is_cited_in_the_code_that_holds_it_and_every_citation_exists() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/protocol.md")).unwrap();
    let defined: BTreeSet<usize> = (1..=rules(&page).len()).collect();
    let cited: BTreeSet<usize> = sources()
        .iter()
        .flat_map(|source| cited(&source.comments))
        .collect();
    let uncited: Vec<_> = defined.difference(&cited).collect();
    let unknown: Vec<_> = cited.difference(&defined).collect();
    assert!(
        uncited.is_empty(),
        "no production code cites the rules {uncited:?}"
    );
    assert!(
        unknown.is_empty(),
        "production code cites rules that do not exist: {unknown:?}"
    );
}

#[test]
fn citations_are_read() {
    assert_eq!(
        cited("a lease (P-17, P-26) and P-3."),
        BTreeSet::from([3, 17, 26])
    );
    assert_eq!(cited("P-x, HTTP-2"), BTreeSet::new());
}

#[test]
fn a_check_that_was_renamed_is_found() {
    let page = "\n- **P-1** One.\n  - Trace: x.\n  - Held by: `old_name`, `there`;\n    planted `row`.\n\n## `other`\n";
    let rules = rules(page);
    assert_eq!(rules[0].checks(), ["old_name", "there", "row"]);
    let tests = "fn there() {}\n    row: Code X by \"S1\";\n";
    let missing: Vec<_> = rules[0]
        .checks()
        .into_iter()
        .filter(|check| !exists(check, tests))
        .collect();
    assert_eq!(missing, ["old_name"]);
}
