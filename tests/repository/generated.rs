//! Compares files, and parts of pages, with their generated text.

use std::fs;
use std::path::Path;

use super::source::ROOT;

/// Asserts that the part of this name is `text`, as [`file`] does.
pub fn part(page: &str, name: &str, text: &str) {
    let path = Path::new(ROOT).join(page);
    let (begin, end) = (
        format!("<!-- {name}: written by `make generate` -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let found = fs::read_to_string(&path).unwrap();
    let (before, rest) = found
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{page} has no place for the {name}: {begin}"));
    let (_, after) = rest.split_once(&end).expect("and its end");
    let wanted = format!("{before}{begin}\n{text}\n{end}{after}");
    file(page, &wanted);
}

/// Asserts that the file has this text; with `REDLOCK_REGENERATE` set it writes the text.
pub fn file(name: &str, wanted: &str) {
    let path = Path::new(ROOT).join(name);
    if std::env::var_os("REDLOCK_REGENERATE").is_some() {
        fs::write(&path, wanted).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(&path).unwrap() == wanted,
        "{name} is out of date: run `make generate`"
    );
}
