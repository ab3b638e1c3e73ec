//! Names clusters, candidates and locks.
//!
//! Owns the rules for every text that is part of a lease value or a key. Those texts are joined by `|` and read by
//! people, so a part that contains `|`, white space, a control character or an invisible one is refused here, and only here.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A name may become a Kubernetes label value: 63 characters.
const CLUSTER_NAME_LIMIT: usize = 63;
/// A Kubernetes UID has 36 characters; the limit leaves room for other schemes.
const CLUSTER_UID_LIMIT: usize = 64;
/// `<namespace>/<pod>/<pod UID>` takes 63 + 253 + 36 and two slashes.
const IDENTITY_LIMIT: usize = 512;
/// `<namespace>/<name>` takes 63 + 253 and a slash.
const LOCK_NAME_LIMIT: usize = 512;
/// The characters of a refused value that a message shows.
const SHOWN_LIMIT: usize = 128;
/// The first character of the names of the crate's own locks.
const INTERNAL_MARK: char = '_';

/// A text that cannot be part of a lease value or a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("{what} is empty: give at least one character")]
    Empty { what: &'static str },
    #[error("{what} {value:?} contains {found:?}: do not use {refused}, white space or control characters")]
    Character {
        what: &'static str,
        value: String,
        found: char,
        refused: &'static str,
    },
    #[error("{what} {value:?} has {length} characters: use at most {limit}")]
    TooLong {
        what: &'static str,
        value: String,
        length: usize,
        limit: usize,
    },
    #[error("cluster {value:?} contains \":\": give NAME or NAME/UID, such as {example}")]
    Colon { value: String, example: String },
    #[error("{what} {value:?} begins with \"_\": such names are reserved for the locks of redlock itself")]
    Internal { what: &'static str, value: String },
}

/// A cluster, or its equivalent outside Kubernetes. Two clusters are the same when the whole value is equal. Equal
/// names with different UIDs are a mistake that is reported elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ClusterId {
    name: Arc<str>,
    uid: Arc<str>,
}

impl ClusterId {
    pub fn new(name: &str, uid: &str) -> Result<ClusterId, IdentityError> {
        // No slash: the written form is NAME/UID.
        check("cluster name", name, "|/", "\"|\", \"/\"", CLUSTER_NAME_LIMIT)?;
        check("cluster UID", uid, "|/", "\"|\", \"/\"", CLUSTER_UID_LIMIT)?;
        Ok(ClusterId {
            name: name.into(),
            uid: uid.into(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }
}

impl Default for ClusterId {
    fn default() -> Self {
        ClusterId {
            name: "local".into(),
            uid: "local".into(),
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.uid)
    }
}

impl FromStr for ClusterId {
    type Err = IdentityError;

    /// Reads `NAME[/UID]`, without colons. A name alone is its own UID: the UID distinguishes clusters, and two hosts with
    /// different names must not count as one cluster.
    fn from_str(text: &str) -> Result<ClusterId, IdentityError> {
        // Without this rule, the ARN of a cluster, arn:…:cluster/NAME, would name all clusters of an account alike.
        if text.contains(':') {
            let value: String = text.chars().take(SHOWN_LIMIT).collect();
            let last = text.rsplit(['/', ':']).next().unwrap_or_default();
            let example = if check("cluster name", last, "|", "", CLUSTER_NAME_LIMIT).is_ok() {
                last.to_owned()
            } else {
                "prod-a".to_owned()
            };
            return Err(IdentityError::Colon { value, example });
        }
        let (name, uid) = text.split_once('/').unwrap_or((text, text));
        ClusterId::new(name, uid)
    }
}

/// One candidate among all that contend for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct HolderIdentity(Arc<str>);

impl HolderIdentity {
    pub fn parse(text: &str) -> Result<HolderIdentity, IdentityError> {
        check("holder identity", text, "|", "\"|\"", IDENTITY_LIMIT)?;
        Ok(HolderIdentity(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a lock on the masters; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct LockName(Arc<str>);

impl LockName {
    /// Parses the name of a user's lock.
    pub fn parse(text: &str) -> Result<LockName, IdentityError> {
        let name = LockName::checked(text)?;
        if text.starts_with(INTERNAL_MARK) {
            return Err(IdentityError::Internal {
                what: "lock name",
                value: text.to_owned(),
            });
        }
        Ok(name)
    }

    /// Builds the name of one of the crate's own locks: `_<purpose>/<rest>`, such as `_reporter/<cluster UID>`.
    pub fn internal(purpose: &str, rest: &str) -> Result<LockName, IdentityError> {
        LockName::checked(&format!("{INTERNAL_MARK}{purpose}/{rest}"))
    }

    /// Parses a name as it is stored on a master: a user's or one of the crate's own.
    pub fn any(text: &str) -> Result<LockName, IdentityError> {
        LockName::checked(text)
    }

    fn checked(text: &str) -> Result<LockName, IdentityError> {
        check("lock name", text, "|", "\"|\"", LOCK_NAME_LIMIT)?;
        Ok(LockName(text.into()))
    }

    pub fn is_internal(&self) -> bool {
        self.0.starts_with(INTERNAL_MARK)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl FromStr for $type {
            type Err = IdentityError;

            fn from_str(text: &str) -> Result<Self, IdentityError> {
                <$type>::parse(text)
            }
        }
    )*};
}

as_text!(HolderIdentity, LockName);

/// Reports whether a character is invisible, or changes the order in which others are shown: people read two names that
/// differ only in it as one.
const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

fn check(
    what: &'static str,
    text: &str,
    forbidden: &str,
    refused: &'static str,
    limit: usize,
) -> Result<(), IdentityError> {
    if text.is_empty() {
        return Err(IdentityError::Empty { what });
    }
    let length = text.chars().count();
    if length > limit {
        // A value that is far too long would hide the message.
        let value = text.chars().take(40).chain(['…']).collect();
        return Err(IdentityError::TooLong {
            what,
            value,
            length,
            limit,
        });
    }
    match text
        .chars()
        .find(|c| c.is_control() || c.is_whitespace() || is_hidden(*c) || forbidden.contains(*c))
    {
        Some(found) => Err(IdentityError::Character {
            what,
            value: text.to_owned(),
            found,
            refused,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_with_invisible_characters_are_refused() {
        for hidden in ['\u{200b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{ad}'] {
            let error = LockName::parse(&format!("team/a{hidden}b")).unwrap_err();
            assert!(matches!(error, IdentityError::Character { found, .. } if found == hidden));
            assert!(error.to_string().is_ascii(), "{error}");
        }
    }

    #[test]
    fn a_cluster_is_written_name_slash_uid() {
        let table = [
            ("eu-1/8f0c", "eu-1", "8f0c", "eu-1/8f0c"),
            ("eu-1", "eu-1", "eu-1", "eu-1/eu-1"), // distinguished by UID, so two names are two clusters
            ("local", "local", "local", "local/local"),
        ];
        for (text, name, uid, shown) in table {
            let cluster: ClusterId = text.parse().unwrap();
            assert_eq!(
                (cluster.name(), cluster.uid(), cluster.to_string().as_str()),
                (name, uid, shown)
            );
        }
        assert_eq!(ClusterId::default(), "local".parse().unwrap());
        let arn = "arn:aws:eks:eu-central-1:123456789012:cluster/prod-a";
        let error = arn.parse::<ClusterId>().unwrap_err().to_string();
        assert!(
            error.contains(arn) && error.ends_with("such as prod-a"),
            "{error}"
        );
        for with_colon in [
            "a:b",
            "a:b/c",
            "a/b:c",
            "api-example-com:6443/kube:admin",
            ":",
            "arn:x/",
        ] {
            let error = with_colon.parse::<ClusterId>().unwrap_err().to_string();
            assert!(error.contains("give NAME or NAME/UID"), "{error}");
        }
        assert_ne!("a".parse::<ClusterId>(), "b".parse::<ClusterId>());
    }

    #[test]
    fn a_character_that_breaks_a_lease_value_is_refused() {
        for bad in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a|b",
            "a b",
            "a/b\n",
            "a/\u{0}",
            "a\u{2003}b/c",
        ] {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad:?}");
        }
        for bad in ["", "a|b", " a", "a\n", "a\tb", "a\u{7f}", "\u{a0}"] {
            assert!(HolderIdentity::parse(bad).is_err(), "{bad:?}");
            assert!(LockName::parse(bad).is_err(), "{bad:?}");
        }
        for good in [
            "eu-1/redlock-operator-6c9f",
            "billing/nightly-report",
            "Überweisung",
            "a:b{c}*",
        ] {
            assert_eq!(HolderIdentity::parse(good).unwrap().as_str(), good);
            assert_eq!(LockName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        let long = |n| "ü".repeat(n);
        assert!(ClusterId::new(&long(63), &long(64)).is_ok());
        assert!(ClusterId::new(&long(64), "u").is_err());
        assert!(ClusterId::new("n", &long(65)).is_err());
        assert!(HolderIdentity::parse(&long(512)).is_ok());
        assert!(LockName::parse(&long(512)).is_ok());
        assert!(HolderIdentity::parse(&long(513)).is_err());
        let error = LockName::parse(&long(513)).unwrap_err().to_string();
        assert!(
            error.contains("lock name") && error.contains("513") && error.contains("at most 512"),
            "{error}"
        );
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn names_with_an_underscore_in_front_are_the_crates_own() {
        let error = LockName::parse("_reporter/uid").unwrap_err();
        assert_eq!(
            error,
            IdentityError::Internal {
                what: "lock name",
                value: "_reporter/uid".into()
            }
        );
        let own = LockName::internal("reporter", "uid").unwrap();
        assert_eq!((own.as_str(), own.is_internal()), ("_reporter/uid", true));
        assert!(LockName::internal("reporter", "a b").is_err());
        assert!(!LockName::parse("a_b").unwrap().is_internal());
    }

    #[test]
    fn an_error_names_the_field_the_value_and_the_expected_value() {
        let error = HolderIdentity::parse("a|b").unwrap_err().to_string();
        assert_eq!(
            error,
            "holder identity \"a|b\" contains '|': do not use \"|\", white space or control characters"
        );
    }

    proptest! {
        #[test]
        fn an_accepted_value_reads_back_the_same(text in "\\PC{0,80}") {
            if let Ok(cluster) = text.parse::<ClusterId>() {
                prop_assert_eq!(cluster.to_string().parse::<ClusterId>(), Ok(cluster));
            }
            if let Ok(name) = LockName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn nothing_accepted_can_split_a_lease_value(text in any::<String>()) {
            for accepted in [
                HolderIdentity::parse(&text).map(|i| i.to_string()),
                LockName::parse(&text).map(|n| n.to_string()),
                text.parse::<ClusterId>().map(|c| c.to_string()),
            ].into_iter().flatten() {
                prop_assert!(!accepted.contains(['|', '\n', ' ', '\0']));
            }
        }
    }
}
