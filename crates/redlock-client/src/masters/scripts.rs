//! Computes the hashes by which EVALSHA names the scripts.

use std::{collections::BTreeMap, sync::LazyLock};

use redlock_core::script::{ALL, Script};

static SHA: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let sha = |script: &Script| redis::Script::new(&script.source).get_hash().to_owned();
    ALL.iter().map(|script| (script.name, sha(script))).collect()
});

/// Returns the command that runs a script, and its argument: the hash if the script ran on this connection
/// before, and the source otherwise.
pub(super) fn call(script: &'static Script, before: bool) -> (&'static str, &'static str) {
    match SHA.get(script.name).filter(|_| before) {
        Some(sha) => ("EVALSHA", sha),
        None => ("EVAL", &script.source),
    }
}

#[cfg(test)]
mod tests {
    use super::SHA;

    /// Locks without fencing do not pay for it: their scripts are the texts from before fencing existed. An
    /// intended change of a script must also change its hash here.
    #[test]
    fn locks_without_fencing_run_the_scripts_from_before_there_was_any() {
        for (name, sha) in [
            ("GRANT", "485967688c03b70051ae3a0e72fcc8c8d175076d"),
            ("CONFIRM", "9a1ddfa50bfd5045b963f66d0ad1e196a2c05204"),
            ("RENEW", "73e10a60a8ddde6b17082145fb10a23173f875a8"),
            ("RELEASE", "69533b53ed943a5502ecc8c271c3f6b1919c63cd"),
            ("RESERVE", "717e234af09f8724013d74c5f8774a567e1e0b44"),
            ("OBSERVE", "e0e4c360f65a88e8d757ff88f75b85e4c6bd4ceb"),
            ("MARK", "6b0225a66a185205a7a4ef64c97ad874b857318c"),
            ("CLAIM", "8c4924fef77ee708f66833fef72a55bc5aae5f9c"),
            ("SLOTS", "ed3fb45d48fb9c00aa22deecc5a8b8bb8e789a6d"),
        ] {
            assert_eq!(SHA.get(name).map(String::as_str), Some(sha), "{name}");
        }
    }
}
