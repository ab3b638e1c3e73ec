//! Names the finalizer that keeps a RedisQuorum while LeaderLocks name it.
//!
//! Releases of the operator that watch different namespaces do not see each other's locks, so each set of namespaces
//! has its own finalizer. The finalizer also names the release, if it is known: when the namespaces of the release
//! change, the release removes the finalizer of the former set.

/// The common prefix of the finalizers of all sets of namespaces.
const PREFIX: &str = "redlock.dev/in-use-";

/// Returns a short name for a set of namespaces: `all`, or a hash. The empty namespace stands for all of them.
pub(crate) fn scope(namespaces: &[String]) -> String {
    if namespaces.iter().any(String::is_empty) || namespaces.is_empty() {
        return "all".to_owned();
    }
    let mut sorted: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    hash(&sorted.join(","))
}

/// FNV-1a: the hash is the same in every version, and short enough for a finalizer regardless of the watched
/// namespaces.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The finalizers of a known release.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Release {
    /// The prefix of its finalizers, for any set of namespaces.
    prefix: String,
    /// The finalizer of a build that did not name the release. It belongs to this release, because no other release may
    /// watch the same namespaces.
    unnamed: String,
}

/// The finalizers of one replica's release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InUseFinalizer {
    release: Option<Release>,
    /// The finalizer of the namespaces that are watched now.
    pub(crate) own: String,
}

impl InUseFinalizer {
    /// Creates the finalizers of the replicas with these labels in this namespace, which watch `namespaces`.
    pub(crate) fn new(release: Option<(&str, &str)>, namespaces: &[String]) -> Self {
        let scope = scope(namespaces);
        let unnamed = format!("{PREFIX}{scope}");
        let Some((namespace, labels)) = release else {
            return Self {
                release: None,
                own: unnamed,
            };
        };
        let hash = hash(&format!("{namespace}/{labels}"));
        let prefix = format!("{PREFIX}{hash}.");
        Self {
            own: format!("{prefix}{scope}"),
            release: Some(Release { prefix, unnamed }),
        }
    }

    /// Whether the finalizer is one of the same release for other namespaces, or of a build that did not name the
    /// release.
    pub(crate) fn is_stale(&self, finalizer: &str) -> bool {
        let of_release =
            |release: &Release| finalizer.starts_with(&release.prefix) || finalizer == release.unnamed;
        finalizer != self.own && self.release.as_ref().is_some_and(of_release)
    }
}

/// Whether the finalizer is that of a release that watches these namespaces. No two releases may watch the same ones.
pub(crate) fn is_of(finalizer: &str, namespaces: &[String]) -> bool {
    let name = finalizer.strip_prefix(PREFIX);
    let scope_of = |name: &str| name.rsplit('.').next() == Some(&scope(namespaces));
    name.is_some_and(scope_of)
}

/// Whether the finalizer is one of any set of namespaces.
pub(crate) fn is_one(finalizer: &str) -> bool {
    finalizer.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_namespaces_has_a_finalizer_of_its_own() {
        let of = |names: &[&str]| InUseFinalizer::new(None, &owned(names)).own;
        assert_eq!(of(&[]), "redlock.dev/in-use-all");
        assert_eq!(of(&[""]), of(&[]));
        assert_eq!(of(&["a", "b"]), of(&["b", "a", "b"]));
        assert_ne!(of(&["a"]), of(&["b"]));
        assert!(is_one(&of(&["a"])) && !is_one("redlock.dev/targets"));
        assert!(is_of(&of(&["a", "b"]), &owned(&["b", "a"])) && !is_of(&of(&["a"]), &owned(&["b"])));
        assert!(!is_of("redlock.dev/targets", &[]));
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_release_knows_its_finalizers_of_other_namespaces() {
        let of = |release, names: &[&str]| InUseFinalizer::new(Some(("redlock", release)), &owned(names));
        let (before, now) = (of("app=a", &["a"]), of("app=a", &["a", "b"]));
        assert!(now.is_stale(&before.own) && before.is_stale(&now.own));
        assert!(!now.is_stale(&now.own));
        let other = of("app=b", &["a"]);
        assert!(!now.is_stale(&other.own) && is_of(&other.own, &owned(&["a"])));
        assert!(!now.is_stale(&InUseFinalizer::new(None, &owned(&["a"])).own));
        let unnamed = InUseFinalizer::new(None, &owned(&["b", "a"]));
        assert!(
            now.is_stale(&unnamed.own),
            "of a build that did not name the release"
        );
        assert!(!unnamed.is_stale(&unnamed.own) && !unnamed.is_stale(&now.own));
        let name = now.own.strip_prefix("redlock.dev/").unwrap();
        assert!(name.len() <= 63, "{name}");
    }
}
