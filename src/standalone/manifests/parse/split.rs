//! Splits a file into its documents, so that broken YAML in one document does not affect the next.
//!
//! Splits by text, not by a parser. A line that begins with `---` is always a boundary, because YAML does not
//! allow it inside a scalar. A parser returns nothing after its first error.

use std::fmt::Display;

/// The text of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk<'a> {
    pub(super) text: &'a str,
    /// The number of lines of the file above the document.
    lines_above: usize,
}

/// Returns the documents of a file. Comments and directives above the first marker are not a document.
pub(super) fn documents(file: &str) -> Vec<Chunk<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut marked) = (0, 0, false);
    let mut cut = |start: usize, end: usize, lines_above: usize, marked: bool| {
        if let Some(text) = file.get(start..end).filter(|text| marked || has_content(text)) {
            documents.push(Chunk { text, lines_above });
        }
    };
    let mut at = 0;
    for (number, line) in file.split_inclusive('\n').enumerate() {
        if is_marker(line, "---") {
            cut(start, at, first_line, marked);
            (start, first_line, marked) = (at, number, true);
        } else if is_marker(line, "...") {
            cut(start, at, first_line, marked);
            (start, first_line, marked) = (at + line.len(), number + 1, false);
        }
        at += line.len();
    }
    cut(start, at, first_line, marked);
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn has_content(text: &str) -> bool {
    text.lines()
        .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#') && !line.starts_with('%'))
}

impl Chunk<'_> {
    /// Returns the message of a parser that read only this document, with its lines counted from the top of the file.
    pub(super) fn with_lines_of_file(&self, cause: &impl Display) -> String {
        const MARK: &str = " line ";
        let message = cause.to_string();
        let mut parts = message.split(MARK);
        let mut shifted = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            shifted.push_str(MARK);
            match number.parse::<usize>() {
                Ok(line) if rest.starts_with(" column ") => {
                    shifted.push_str(&line.saturating_add(self.lines_above).to_string());
                }
                _ => shifted.push_str(number),
            }
            shifted.push_str(rest);
        }
        shifted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_begin_at_markers() {
        let table: &[(&str, &[(&str, usize)])] = &[
            ("", &[]),
            ("# comment\n\n", &[]),
            ("a", &[("a", 0)]),
            ("---\n", &[("---\n", 0)]),
            (
                "# c\n---\na\n---\n---\nb\n",
                &[("---\na\n", 1), ("---\n", 3), ("---\nb\n", 4)],
            ),
            ("a\n--- b\n", &[("a\n", 0), ("--- b\n", 1)]),
            ("a\r\n---\r\nb", &[("a\r\n", 0), ("---\r\nb", 1)]),
            ("a\n...\n# c\n---\nb", &[("a\n", 0), ("---\nb", 3)]),
            ("a\n...\nb", &[("a\n", 0), ("b", 2)]),
            ("%YAML 1.2\n---\na", &[("---\na", 1)]),
            (
                "a: |\n  ---\n ---\n---x\n----\n",
                &[("a: |\n  ---\n ---\n---x\n----\n", 0)],
            ),
            ("ä\n---\nü", &[("ä\n", 0), ("---\nü", 1)]),
        ];
        for (file, wanted) in table {
            let found: Vec<(&str, usize)> = documents(file).iter().map(|c| (c.text, c.lines_above)).collect();
            assert_eq!(&found, wanted, "{file:?}");
        }
    }

    #[test]
    fn lines_are_counted_from_the_top_of_the_file() {
        let chunk = Chunk {
            text: "",
            lines_above: 10,
        };
        let table = [
            ("bad at line 2 column 3", "bad at line 12 column 3"),
            (
                "bad at line 1 column 1, while at line 2 column 3",
                "bad at line 11 column 1, while at line 12 column 3",
            ),
            ("no line here", "no line here"),
            ("a line 2 of text", "a line 2 of text"),
            (
                "at line 99999999999999999999999 column 1",
                "at line 99999999999999999999999 column 1",
            ),
        ];
        for (message, wanted) in table {
            assert_eq!(chunk.with_lines_of_file(&message), wanted);
        }
    }
}
