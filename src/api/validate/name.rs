//! Names as Kubernetes knows them.

use super::problems::{FieldError, Quoted};
use crate::api::reasons;

const LABEL_LIMIT: usize = 63;
const SUBDOMAIN_LIMIT: usize = 253;

/// Lower-case letters, digits and `-`, at most 63, a letter or digit at both ends.
pub(super) fn check_label(field: &str, value: &str) -> Option<FieldError> {
    (!is_label(value)).then(|| FieldError::new(field, Quoted(value), reasons::LABEL))
}

/// Labels joined by dots, at most 253.
pub(super) fn check_subdomain(field: &str, value: &str) -> Option<FieldError> {
    let valid = value.len() <= SUBDOMAIN_LIMIT && value.split('.').all(is_label_of_any_length);
    (!valid).then(|| FieldError::new(field, Quoted(value), reasons::SUBDOMAIN))
}

fn is_label(value: &str) -> bool {
    value.len() <= LABEL_LIMIT && is_label_of_any_length(value)
}

fn is_label_of_any_length(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !value.is_empty() && value.chars().all(inner) && !value.starts_with('-') && !value.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains_follow_kubernetes() {
        let long = "a".repeat(64);
        let table = [
            ("m0", true, true),
            ("a", true, true),
            ("eu-west-1", true, true),
            (&long[..63], true, true),
            (&long, false, true),
            ("a.b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("a.", false, false),
            ("A", false, false),
            ("a_b", false, false),
            ("ä", false, false),
            ("a\n", false, false),
        ];
        for (name, label, subdomain) in table {
            assert_eq!(check_label("f", name).is_none(), label, "label {name:?}");
            assert_eq!(
                check_subdomain("f", name).is_none(),
                subdomain,
                "subdomain {name:?}"
            );
        }
        assert!(
            check_subdomain("f", &[&long[..60]; 5].join(".")).is_some(),
            "304 characters"
        );
    }
}
