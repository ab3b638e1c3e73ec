//! The finalizer that keeps a RedisQuorum while LeaderLocks name it.
//!
//! Releases of the operator that watch different namespaces do not see each other's locks, so each set of namespaces has a
//! finalizer of its own.

/// What the finalizers of all sets of namespaces begin with.
const PREFIX: &str = "redlock.dev/in-use-";

/// A set of namespaces in a name: `all`, or a hash. The empty namespace stands for all of them.
pub(crate) fn scope(namespaces: &[String]) -> String {
    if namespaces.iter().any(String::is_empty) || namespaces.is_empty() {
        return "all".to_owned();
    }
    let mut sorted: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    // FNV-1a: the same in every version, and short enough for every name whatever is watched.
    let hash = sorted
        .join(",")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

/// That of the operators that watch these namespaces.
pub(crate) fn finalizer(namespaces: &[String]) -> String {
    format!("{PREFIX}{}", scope(namespaces))
}

/// Whether it is one of any set of namespaces.
pub(crate) fn is_one(finalizer: &str) -> bool {
    finalizer.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_namespaces_has_a_finalizer_of_its_own() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            finalizer(&names)
        };
        assert_eq!(of(&[]), "redlock.dev/in-use-all");
        assert_eq!(of(&[""]), of(&[]));
        assert_eq!(of(&["a", "b"]), of(&["b", "a", "b"]));
        assert_ne!(of(&["a"]), of(&["b"]));
        assert!(is_one(&of(&["a"])) && !is_one("redlock.dev/targets"));
    }
}
