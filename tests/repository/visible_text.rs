//! Reads the text that users read, file by file: error and log strings, `--help`, descriptions of the CRDs, alerts,
//! the messages of the chart, and the pages. Leaves out quotations and code.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::pages::pages;
use super::source::{ROOT, Source, sources};

/// One passage: a paragraph, a string literal, a description.
#[derive(Debug)]
pub struct Passage {
    /// The path below the repository.
    pub path: String,
    pub text: String,
}

/// Returns all passages of the repository.
pub fn passages() -> Vec<Passage> {
    let mut found = Vec::new();
    let mut add = |path: &str, texts: Vec<String>| {
        let passages = texts.into_iter().map(|text| Passage {
            path: path.into(),
            text,
        });
        found.extend(passages);
    };
    for source in sources().iter().filter(|source| !source.code.is_empty()) {
        add(&source.path, of_source(source));
    }
    for page in pages() {
        add(&page, of_page(&read(&page)));
    }
    for path in files("crds")
        .into_iter()
        .chain(files("charts/redlock-operator/files"))
    {
        add(&path, of_yaml(&read(&path)));
    }
    for path in files("charts/redlock-operator/templates") {
        let notes = path.ends_with("NOTES.txt");
        let text = read(&path);
        add(
            &path,
            if notes {
                of_page(&without(&text, "{{", "}}"))
            } else {
                of_template(&text)
            },
        );
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(folder: &str) -> Vec<String> {
    let entries = Path::new(ROOT).join(folder).read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut paths: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
    paths.retain(|path| Path::new(ROOT).join(path).is_file());
    paths.sort();
    paths
}

fn of_source(source: &Source) -> Vec<String> {
    let mut found: Vec<String> = literals(&source.code)
        .iter()
        .filter_map(|text| sentence(text))
        .collect();
    found.extend(help(&read(&source.path)));
    found
}

/// Returns the values of string literals, raw ones too.
pub fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, from) = rest.split_at(at);
        if from.starts_with('\'') {
            rest = after_quote(from);
            continue;
        }
        let (value, after) = string(before, from);
        found.push(value);
        rest = after;
    }
    found
}

/// Returns the value of the string literal at the beginning of `from`, and the text after it.
pub fn string<'a>(before: &str, from: &'a str) -> (String, &'a str) {
    let code = before.trim_end_matches('#');
    if code.ends_with('r') {
        raw_literal(&from[1..], before.len() - code.len())
    } else {
        literal(&from[1..])
    }
}

/// Returns the text after a character literal, or after the apostrophe of a lifetime.
pub fn after_quote(from: &str) -> &str {
    let mut inside = from[1..].char_indices();
    match (inside.next(), inside.next()) {
        (Some((_, '\\')), Some(_)) => inside
            .find(|(_, c)| *c == '\'')
            .map_or("", |(at, _)| &from[at + 2..]),
        (Some(_), Some((at, '\''))) => &from[at + 2..],
        _ => &from[1..],
    }
}

fn raw_literal(from: &str, hashes: usize) -> (String, &str) {
    let end = format!("\"{}", "#".repeat(hashes));
    let (value, after) = from.split_once(&end).unwrap_or((from, ""));
    (value.to_owned(), after)
}

fn literal(from: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = from.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &from[at + 1..]),
            '\\' => match characters.next() {
                Some((_, '\n' | 'n' | 't')) => value.push(' '),
                Some((_, escaped)) => value.push(escaped),
                None => {}
            },
            c => value.push(c),
        }
    }
    (value, "")
}

/// Returns the doc comments that clap reads: those of items that derive one of its traits, with their fields and
/// variants.
pub fn help(text: &str) -> Vec<String> {
    let derives = ["Args", "Parser", "Subcommand", "ValueEnum"];
    let lines: Vec<&str> = text.lines().collect();
    let mut paragraphs = String::new();
    for (at, line) in lines.iter().enumerate() {
        if !line.trim_start().starts_with("#[derive(") || !derives.iter().any(|name| line.contains(name)) {
            continue;
        }
        let above = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.trim_start().starts_with("///"));
        let above: Vec<&&str> = above.collect();
        let depth = line.len() - line.trim_start().len();
        let item = lines[at..]
            .iter()
            .take_while(|line| !line.get(depth..).is_some_and(|end| end.starts_with('}')));
        for line in above.into_iter().rev().chain(item) {
            match line.trim_start().strip_prefix("///") {
                Some(doc) => paragraphs.push_str(doc.trim_start()),
                None => paragraphs.push('\n'),
            }
            paragraphs.push('\n');
        }
    }
    of_page(&paragraphs)
}

/// Returns the descriptions and messages of a YAML or JSON file, at any depth.
pub fn of_yaml(text: &str) -> Vec<String> {
    let fields = ["description", "message", "summary", "title"];
    let mut found = Vec::new();
    let mut open: Vec<Value> = vec![serde_yaml::from_str(text).unwrap()];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values),
            Value::Object(entries) => {
                for (key, value) in entries {
                    match value {
                        Value::String(text) if fields.contains(&key.as_str()) => found.extend(of_page(&text)),
                        Value::String(_) => {}
                        value => open.push(value),
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the strings of a template that are sentences: messages of `fail`.
fn of_template(text: &str) -> Vec<String> {
    let strings = text.lines().flat_map(|line| literals(&line.replace('\'', " ")));
    strings.filter_map(|text| sentence(&text)).collect()
}

/// Returns a literal of several words; keys, formats and names are not sentences.
fn sentence(text: &str) -> Option<String> {
    let text = without_quotations(&without(text, "{", "}"));
    let words = text
        .split_whitespace()
        .filter(|word| word.len() > 1 && word.chars().all(char::is_alphabetic));
    (words.count() > 1).then_some(text)
}

/// Returns the headings, paragraphs, items and rows of a page in Markdown, and the comments of its code blocks.
/// Leaves out code and quotations.
pub fn of_page(text: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![String::new()];
    let mut fenced = false;
    for line in without(text, "<!--", "-->").lines().map(str::trim) {
        let fence = line.starts_with("```");
        let item = line.starts_with(['-', '*', '|']) || line.starts_with(|c: char| c.is_ascii_digit());
        if fence || fenced || line.is_empty() || line.starts_with(['#', '>']) {
            let comment = line.strip_prefix('#').or_else(|| behind(line, "#"));
            fenced ^= fence;
            found.push(comment.unwrap_or_default().trim_start_matches('#').to_owned());
            found.push(String::new());
            continue;
        }
        if item {
            found.push(String::new());
        }
        if line.starts_with('|') {
            found.extend(cells(line));
            continue;
        }
        let last = found.last_mut().unwrap();
        last.push_str(line);
        last.push(' ');
    }
    let texts = found.iter().map(|text| without_quotations(text));
    texts.filter(|text| !text.trim().is_empty()).collect()
}

/// Returns the comment behind the code of a line: the text after a space and this marker.
pub fn behind<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    let marker = format!(" {marker}");
    line.match_indices(&marker)
        .map(|(at, _)| line[at + marker.len()..].trim_start_matches(&marker[1..]))
        .find(|text| text.starts_with(' '))
}

fn cells(row: &str) -> impl Iterator<Item = String> {
    row.split('|').map(str::to_owned)
}

/// Replaces code and quotations by a placeholder, so that the place of the subject stays taken.
fn without_quotations(text: &str) -> String {
    ["``", "`", "\"", "\u{201c}"]
        .iter()
        .fold(text.to_owned(), |text, open| {
            without(&text, open, if *open == "\u{201c}" { "\u{201d}" } else { open })
        })
}

/// Replaces the text between these by a placeholder; an opening one without an end stays.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once(open) {
        let Some((_, after)) = inside.split_once(close) else {
            break;
        };
        found.push_str(before);
        found.push_str(PLACEHOLDER);
        rest = after;
    }
    found + rest
}

/// Stands for code and quotations.
pub const PLACEHOLDER: &str = "§";

#[test]
fn literals_are_read_with_their_escapes() {
    let code = r##"f('"', "a \"b\" \
        c", 'x, r#"raw "quoted""#, &'a str, '\'', "last")"##;
    let found: Vec<String> = literals(code)
        .iter()
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(found, ["a \"b\" c", "raw \"quoted\"", "last"]);
}

#[test]
fn a_page_is_read_without_code_and_quotations() {
    let page = "## Title\nA `who` and \"who\"\nstay.\n\n```sh\nwho $# # why\n# how\n```\n> who\n- item\n| a | b |\n<!-- who -->";
    let words: Vec<String> = of_page(page).iter().map(|text| text.trim().to_owned()).collect();
    assert_eq!(
        words,
        ["Title", "A § and § stay.", "why", "how", "- item", "a", "b", "§"]
    );
    assert_eq!(of_page("- one\n- two\n  more").len(), 2);
}

#[test]
fn the_help_is_generated_by_clap() {
    let text = "\
/// Not read.
fn f() {}

/// Prints a lock.
#[derive(Debug, clap::Args)]
pub struct A {
    /// The name.
    name: String,
}

/// Not read.
struct B;
";
    let found: Vec<String> = help(text).iter().map(|text| text.trim().to_owned()).collect();
    assert_eq!(found, ["Prints a lock.", "The name."]);
}
