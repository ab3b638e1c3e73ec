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
            ("GRANT", "69a2d5d8a368bded7cdf0ac53d31d72e0aa2f46b"),
            ("CONFIRM", "8969a9958604037efd6749833331f5e57d66e399"),
            ("RENEW", "4c24f32ef847ac94b6e9ad54d3ef798dd625c342"),
            ("RELEASE", "bdcb9c28192c3b27f0d5a57980fbb34a6a83b0e6"),
            ("RESERVE", "1c2cd9c86d35e5aa028c67b9d854cce4d0ed0d4d"),
            ("OBSERVE", "db11639df14b648b87c150ebf1566ab8ca36ab6e"),
            ("MARK", "255d520b9a6d821bcecbff194cd801f086c2d1af"),
            ("CLAIM", "5b40b2df1f4d4077e0561400dbe5c13e083389db"),
            ("SLOTS", "84dbcc7c641bb55d5f400a4a50c8db1e3cf93e10"),
        ] {
            assert_eq!(SHA.get(name).map(String::as_str), Some(sha), "{name}");
        }
    }
}
