//! The metrics of a scrape, and the tables of pages that describe them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The names of families, each with its labels.
pub type Families = BTreeMap<String, BTreeSet<String>>;

/// Returns the families of a table of a page: name, type, labels. The values of a label follow after `: `.
pub fn documented(page: &str) -> Families {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{page}: {error}"));
    let row = |line: &str| {
        let row = line.strip_prefix("| `redlock_")?;
        let mut columns = row.split(" | ");
        let name = columns.next()?.trim_end_matches('`');
        let labels = columns.last()?.split(": ").next()?;
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned);
        Some((format!("redlock_{name}"), labels.collect()))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the families of a scrape that begin with `redlock_`, each with the labels of its samples; empty without samples.
pub fn scraped(text: &str) -> Families {
    let mut found = Families::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap_or_default();
            current = name.starts_with("redlock_").then(|| name.to_owned());
            found.extend(current.clone().map(|name| (name, BTreeSet::new())));
        } else if let Some(labels) = current.as_ref().and_then(|name| found.get_mut(name)) {
            labels.extend(labels_of(line));
        }
    }
    found
}

/// Returns the labels of a sample, without that of the buckets of a histogram.
fn labels_of(sample: &str) -> Vec<String> {
    // Every second part is a value; no value of the tests has a quotation mark.
    let outside = sample.split('"').step_by(2);
    let names = outside.filter_map(|part| part.strip_suffix('=')?.rsplit(['{', ',']).next());
    names.filter(|name| *name != "le").map(str::to_owned).collect()
}

/// Compares the families that have samples in a scrape with a page.
pub fn assert_documented(scrape: &str, page: &str) {
    let documented = documented(page);
    for (name, labels) in scraped(scrape) {
        let described = documented.get(&name);
        let described = described.unwrap_or_else(|| panic!("{page} does not describe {name}"));
        assert!(
            labels.is_empty() || labels == *described,
            "{page}: {name} has {labels:?}"
        );
    }
}
