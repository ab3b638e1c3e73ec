//! Tests the table of the chart's values and the defaults of its templates, which are written from values.yaml.

use std::fs;
use std::path::Path;

use super::{generated, source::ROOT};

const VALUES: &str = "charts/redlock-operator/values.yaml";
const README: &str = "charts/redlock-operator/README.md";
const DEFAULTS: &str = "charts/redlock-operator/files/defaults.yaml";

/// A key with the comment directly above it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    path: String,
    /// The value of the key; empty for a key that only contains other keys.
    default: String,
    comment: String,
}

/// Reads lines, not YAML, since it needs the comments. Each level is indented by two spaces, as in this file.
fn rows(values: &str) -> Vec<Row> {
    let (mut rows, mut comment, mut path) = (Vec::<Row>::new(), Vec::new(), Vec::<&str>::new());
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(comment_line) = text.strip_prefix('#') {
            comment.push(comment_line.trim());
            continue;
        }
        if let Some((name, default)) = text.split_once(':').filter(|_| !text.starts_with('-')) {
            path.truncate((line.len() - text.len()) / 2);
            path.push(name);
            rows.push(Row {
                path: path.join("."),
                default: default.trim().to_owned(),
                comment: comment.join(" "),
            });
        }
        comment.clear();
    }
    rows
}

/// Reports whether the comment of a key above this one covers it.
fn is_part_of(row: &Row, rows: &[Row]) -> bool {
    let above = rows
        .iter()
        .filter(|above| row.path.starts_with(&format!("{}.", above.path)));
    above.into_iter().any(|above| !above.comment.is_empty())
}

/// Returns the keys below this one on one line.
fn whole(row: &Row, rows: &[Row]) -> String {
    let below = |path: &str| format!("{path}.");
    let parts: Vec<String> = rows
        .iter()
        .filter_map(|part| Some((part, part.path.strip_prefix(&below(&row.path))?)))
        .filter(|(_, name)| !name.contains('.'))
        .map(|(part, name)| format!("{name}: {}", whole(part, rows)))
        .collect();
    if parts.is_empty() {
        row.default.clone()
    } else {
        format!("{{{}}}", parts.join(", "))
    }
}

fn table(values: &str) -> String {
    let rows = rows(values);
    let mut table = "| value | default | is |\n|---|---|---|\n".to_owned();
    for row in rows.iter().filter(|row| !row.comment.is_empty()) {
        let comment = row.comment.replace('|', "\\|");
        table += &format!("| `{}` | `{}` | {comment} |\n", row.path, whole(row, &rows));
    }
    table
}

#[test]
fn every_value_is_explained() {
    let values = fs::read_to_string(Path::new(ROOT).join(VALUES)).unwrap();
    let rows = rows(&values);
    let silent: Vec<&str> = rows
        .iter()
        .filter(|row| !row.default.is_empty() && row.comment.is_empty() && !is_part_of(row, &rows))
        .map(|row| &*row.path)
        .collect();
    assert!(
        rows.len() > 40 && silent.is_empty(),
        "no comment in {VALUES}: {silent:?}"
    );
}

#[test]
fn the_table_of_values_is_up_to_date() {
    let values = fs::read_to_string(Path::new(ROOT).join(VALUES)).unwrap();
    generated::part(README, "values", &table(&values));
}

/// Helm does not show values.yaml to templates, and removes from the values each key that is null.
#[test]
fn the_defaults_of_the_templates_are_up_to_date() {
    let values = fs::read_to_string(Path::new(ROOT).join(VALUES)).unwrap();
    let mut text = "# The values of values.yaml, written by `make generate`.\n".to_owned();
    let lines = values.lines().filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    for line in lines {
        text += line;
        text.push('\n');
    }
    generated::file(DEFAULTS, &text);
}

#[test]
fn a_row_is_a_key_with_its_comment() {
    let values = "\
# Not of a key.

# How many,
# two lines.
count: 2
# A list | of things.
list: []
# - a

group:
  # Of a part.
  part: {}
# Whole.
all:
  one: 1
  two:
    three: x
";
    assert_eq!(
        table(values),
        "| value | default | is |\n|---|---|---|\n\
         | `count` | `2` | How many, two lines. |\n\
         | `list` | `[]` | A list \\| of things. |\n\
         | `group.part` | `{}` | Of a part. |\n\
         | `all` | `{one: 1, two: {three: x}}` | Whole. |\n"
    );
}
