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
    (!is_subdomain(value)).then(|| FieldError::new(field, Quoted(value), reasons::SUBDOMAIN))
}

fn is_subdomain(value: &str) -> bool {
    value.len() <= SUBDOMAIN_LIMIT && value.split('.').all(is_label_of_any_length)
}

fn is_label(value: &str) -> bool {
    value.len() <= LABEL_LIMIT && is_label_of_any_length(value)
}

fn is_label_of_any_length(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !value.is_empty() && value.chars().all(inner) && !value.starts_with('-') && !value.ends_with('-')
}

/// `VERSION` or `GROUP/VERSION`: a subdomain, and a label that begins with a letter. Anything else could be the path of
/// something else.
pub(crate) fn is_api_version(value: &str) -> bool {
    let (group, version) = value
        .split_once('/')
        .map_or((None, value), |(group, version)| (Some(group), version));
    let begins_with_letter = version.starts_with(|c: char| c.is_ascii_lowercase());
    begins_with_letter && is_label(version) && group.is_none_or(is_subdomain)
}

/// The key of a label: a name, behind a subdomain if there is a prefix.
pub(super) fn is_label_key(value: &str) -> bool {
    let (prefix, name) = value
        .split_once('/')
        .map_or((None, value), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_subdomain)
}

/// The value of a label, which may be empty.
pub(super) fn is_label_value(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = |c: char| c.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= LABEL_LIMIT
            && value.chars().all(inner)
            && value.starts_with(end)
            && value.ends_with(end))
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

    #[test]
    fn api_versions_and_labels_follow_kubernetes() {
        for (value, valid) in [
            ("v1", true),
            ("apps/v1", true),
            ("a.b-c.d/v1beta2", true),
            ("", false),
            ("/v1", false),
            ("apps/", false),
            ("../v1", false),
            ("./v1", false),
            ("a/b/c", false),
            ("Apps/v1", false),
            ("apps/1", false),
            ("apps/v1.2", false),
            ("apps/v1\n", false),
        ] {
            assert_eq!(is_api_version(value), valid, "{value:?}");
        }
        let long = "a".repeat(64);
        for (value, key, label) in [
            ("app", true, true),
            ("App_1.x-y", true, true),
            ("example.com/App", true, false),
            ("", false, true),
            ("-a", false, false),
            ("a.", false, false),
            ("/a", false, false),
            ("a/", false, false),
            ("A.com/a", false, false),
            ("a/b/c", false, false),
            ("a b", false, false),
            (&long, false, false),
            (&long[..63], true, true),
        ] {
            assert_eq!(
                (is_label_key(value), is_label_value(value)),
                (key, label),
                "{value:?}"
            );
        }
    }
}
