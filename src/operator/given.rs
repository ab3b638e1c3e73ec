//! The rule for optional text from outside, the same for flags, variables, files and Secrets.

/// Returns a text without the white space around it and without a byte order mark, or `None` if nothing is left: an empty text
/// counts as absent.
#[must_use]
pub(crate) fn given(text: &str) -> Option<&str> {
    let text = text.trim_matches(|character: char| character.is_whitespace() || character == '\u{feff}');
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surroundings_are_no_part_of_a_text_and_an_empty_text_is_absent() {
        for absent in ["", " ", "\n", "\r\n", "\t \n", "\u{feff}", "\u{feff}\n", "\u{a0}"] {
            assert_eq!(given(absent), None, "{absent:?}");
        }
        for text in [
            "s3cret",
            " s3cret",
            "s3cret\r\n",
            "\u{feff}s3cret\n",
            "\n s3cret \n",
        ] {
            assert_eq!(given(text), Some("s3cret"), "{text:?}");
        }
        assert_eq!(given("two words\n"), Some("two words"));
    }
}
