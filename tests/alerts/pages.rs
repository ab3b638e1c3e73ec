//! Tests that each alert has a page with the remedy, and that the commands of the page exist.

use std::collections::BTreeSet;
use std::process::Command;

use crate::shipped::{alerts, path, read, rules};

#[test]
fn each_alert_has_its_page_and_each_page_its_alert() {
    let pages: BTreeSet<String> = path("docs/runbooks")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".md").expect("a page ends with .md").to_owned())
        .filter(|name| name != "README")
        .collect();
    assert_eq!(pages, alerts());
    let monitoring = read("docs/monitoring.md");
    for name in pages {
        let page = read(&format!("docs/runbooks/{name}.md"));
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
        for part in ["## What it means", "## What to check", "## What to do"] {
            assert!(page.contains(part), "{name}: {part}");
        }
        let row = format!("| [{name}](runbooks/{name}.md) |");
        assert!(monitoring.contains(&row), "docs/monitoring.md: {row}");
    }
}

#[test]
fn each_alert_describes_the_problem_and_names_its_page() {
    for rule in rules().into_iter().filter(|rule| rule["alert"].is_string()) {
        let name = rule["alert"].as_str().unwrap();
        let annotation = |key: &str| rule["annotations"][key].as_str().unwrap_or_default().to_owned();
        assert!(
            annotation("runbook_url").ends_with(&format!("/main/docs/runbooks/{name}.md")),
            "{name}"
        );
        assert!(
            !annotation("summary").is_empty() && !annotation("description").is_empty(),
            "{name}"
        );
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}: {severity}"
        );
    }
}

#[test]
fn the_commands_of_the_pages_exist_with_their_flags() {
    let mut seen = 0;
    for name in alerts() {
        let page = read(&format!("docs/runbooks/{name}.md"));
        for line in page.lines() {
            let Some(words) = line.strip_prefix("redlock ") else {
                continue;
            };
            let mut words = words.split(" #").next().unwrap().split_whitespace();
            let command = words.next().unwrap();
            let help = Command::new(env!("CARGO_BIN_EXE_redlock"))
                .args([command, "--help"])
                .output()
                .unwrap();
            assert!(help.status.success(), "{name}: {line}");
            let help = String::from_utf8(help.stdout).unwrap();
            for flag in words.filter(|word| word.starts_with('-')) {
                let known = help.split([' ', ',', '\n', '=']).any(|word| word == flag);
                assert!(known, "{name}: {flag} of {line}");
            }
            seen += 1;
        }
    }
    assert!(seen >= alerts().len(), "only {seen} commands were found");
}
