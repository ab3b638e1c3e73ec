//! Tests that the links of all pages lead to files and headings that exist, that docs/SUMMARY.md lists every page,
//! that each page of docs/ begins with the question that it answers, and that Mermaid can read the sequence diagrams.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::pages::pages;
use super::source::ROOT;

const SUMMARY: &str = "docs/SUMMARY.md";

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the problems that `find` sees in each page, by its path and its text.
fn of_all_pages(find: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    pages().iter().flat_map(|page| find(page, &read(page))).collect()
}

/// Returns the lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of links and pictures, without those in inline code. A link may span two lines.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = prose(text).collect();
    let prose = prose.join("\n");
    let outside: Vec<&str> = prose.split('`').step_by(2).collect();
    let outside = outside.join("`");
    let targets = outside.split("](").skip(1);
    targets
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

/// Returns the anchors of the headings, as GitHub and mdBook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .collect::<String>();
        let anchor = kept.replace(' ', "-");
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone())
            .chain(again)
            .find(|anchor| !found.contains(anchor));
        found.extend(free);
    }
    found
}

/// Returns the lines of sequence diagrams that Mermaid cannot read: `;` ends a statement there, also within a message.
fn unreadable_messages(text: &str) -> Vec<&str> {
    let diagrams = text.split("```mermaid\nsequenceDiagram\n").skip(1);
    diagrams
        .filter_map(|rest| rest.split("```").next())
        .flat_map(str::lines)
        .filter(|line| line.contains(';'))
        .collect()
}

/// Returns the path below the repository, without `..`.
fn resolved(page: &str, path: &str) -> PathBuf {
    let mut found = PathBuf::from(page);
    found.pop();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::Normal(name) => found.push(name),
            _ => {}
        }
    }
    found
}

fn problem(page: &str, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        PathBuf::from(page)
    } else {
        resolved(page, path)
    };
    let file = Path::new(ROOT).join(&target);
    if !file.is_file() {
        return Some(format!(
            "{page}: {link} is not a file; for a folder, link its README.md"
        ));
    }
    let known = anchor.is_empty() || anchors(&read(target.to_str().unwrap())).contains(anchor);
    (!known).then(|| format!("{page}: {} has no heading #{anchor}", target.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let outside = ["http://", "https://", "mailto:"];
    let problems = of_all_pages(|page, text| {
        let links = links(text).into_iter();
        let own = links.filter(|link| !outside.iter().any(|start| link.starts_with(start)));
        own.filter_map(|link| problem(page, &link)).collect()
    });
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_summary_lists_every_page_once() {
    let mut listed: Vec<String> = links(&read(SUMMARY))
        .iter()
        .map(|link| resolved(SUMMARY, link).to_str().unwrap().to_owned())
        .collect();
    listed.sort();
    let mut wanted = pages();
    wanted.retain(|page| page != SUMMARY);
    assert_eq!(listed, wanted);
}

#[test]
fn each_page_begins_with_its_question() {
    let silent: Vec<String> = pages()
        .into_iter()
        .filter(|page| page.starts_with("docs/") && page != SUMMARY)
        .filter(|page| {
            let text = read(page);
            let first = text.lines().skip(1).find(|line| !line.trim().is_empty());
            !first.is_some_and(|line| line.starts_with("This page "))
        })
        .collect();
    assert!(
        silent.is_empty(),
        "the first sentence is `This page shows …`, or lists, describes, helps: {silent:#?}"
    );
}

#[test]
fn no_message_of_a_sequence_diagram_has_a_semicolon() {
    let problems = of_all_pages(|page, text| {
        let lines = unreadable_messages(text).into_iter();
        lines.map(|line| format!("{page}: {}", line.trim())).collect()
    });
    assert!(
        problems.is_empty(),
        "Mermaid shows `Syntax error in text` instead of the diagram; write a comma: {problems:#?}"
    );
}

#[test]
fn links_anchors_and_diagrams_are_read() {
    let text = "# A `b`: c\n[x](y.md#z) `[no](n)` and ![p](p.svg)\n```\n[no](n)\n# no\n```\n## A b c\n";
    assert_eq!(links(text), ["y.md#z", "p.svg"]);
    let found: Vec<String> = anchors(text).into_iter().collect();
    assert_eq!(found, ["a-b-c", "a-b-c-1"]);
    assert_eq!(resolved("docs/a.md", "../b/c.md"), Path::new("b/c.md"));
    let text = "a; b\n```mermaid\nsequenceDiagram\n    A->>B: c\n    A->>B: d; e\n```\nf; g\n";
    assert_eq!(unreadable_messages(text), ["    A->>B: d; e"]);
}
