//! Paths of single fields, as JSON Pointers (RFC 6901) without list indices: a merge patch cannot name an item of a list.

use std::fmt;

/// The longest path, in bytes. The longest annotation key has 317.
pub(crate) const PATH_LIMIT: usize = 512;

/// A path below a top-level field of an object. The parts are unescaped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a path; `None` if it is no JSON Pointer, is too long, or has an empty part or a list index.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts = text.strip_prefix('/').filter(|_| text.len() <= PATH_LIMIT)?;
        let parts: Option<Vec<String>> = parts.split('/').map(unescaped).collect();
        Some(Self(parts?))
    }

    /// The parts, the first of the object's top level.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Returns the key of an annotation; `None` for any other field.
    pub(crate) fn annotation(&self) -> Option<&str> {
        match &self.0[..] {
            [metadata, annotations, key] if metadata == "metadata" && annotations == "annotations" => {
                Some(key)
            }
            _ => None,
        }
    }

    /// Reports whether the path is below this top-level field.
    pub(crate) fn is_below(&self, top: &str) -> bool {
        self.0.len() > 1 && self.0.first().is_some_and(|first| first == top)
    }

    /// Reports whether one path is the other, or leads to it.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(one, other)| one == other)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.iter();
        parts.try_for_each(|part| write!(f, "/{}", part.replace('~', "~0").replace('/', "~1")))
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn unescaped(part: &str) -> Option<String> {
    let index = part == "-" || part.chars().all(|c| c.is_ascii_digit());
    let tilde = part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    let printable = !part
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == ',');
    (!index && tilde && printable).then(|| part.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_json_pointers_without_list_indices() {
        for (text, parts) in [
            ("/spec/suspend", Some(&["spec", "suspend"][..])),
            (
                "/metadata/annotations/crossplane.io~1paused",
                Some(&["metadata", "annotations", "crossplane.io/paused"]),
            ),
            ("/spec/a~0b~01", Some(&["spec", "a~b~1"])),
            ("/spec/v1", Some(&["spec", "v1"])),
            ("", None),
            ("/", None),
            ("spec/suspend", None),
            ("/spec//a", None),
            ("/spec/", None),
            ("/spec/list/0/a", None),
            ("/spec/list/-", None),
            ("/spec/a~", None),
            ("/spec/a~2b", None),
            ("/spec/a b", None),
            ("/spec/a,b", None),
            ("/spec/a\n", None),
        ] {
            let found = Pointer::parse(text);
            assert_eq!(
                found.as_ref().map(Pointer::parts),
                parts
                    .map(|p| p.iter().map(|&p| p.to_owned()).collect::<Vec<_>>())
                    .as_deref(),
                "{text:?}"
            );
            if let Some(found) = found {
                assert_eq!(found.to_string(), text);
            }
        }
        assert_eq!(Pointer::parse(&format!("/spec/{}", "a".repeat(PATH_LIMIT))), None);
    }

    #[test]
    fn a_path_overlaps_those_that_lead_to_it() {
        let overlap = |one, other| {
            Pointer::parse(one)
                .unwrap()
                .overlaps(&Pointer::parse(other).unwrap())
        };
        assert!(
            overlap("/spec/a", "/spec/a")
                && overlap("/spec/a", "/spec/a/b")
                && overlap("/spec/a/b", "/spec/a")
        );
        assert!(!overlap("/spec/a", "/spec/ab") && !overlap("/spec/a/b", "/spec/a/c"));
    }
}
