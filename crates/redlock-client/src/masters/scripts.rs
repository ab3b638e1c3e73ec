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
            ("GRANT", "7827269e0197db26fe6075b63c6d229b3550825b"),
            ("CONFIRM", "8969a9958604037efd6749833331f5e57d66e399"),
            ("RENEW", "96b7ef1ef0c9c0a5da313c2d6a4804ff7b86b4d4"),
            ("RELEASE", "bdcb9c28192c3b27f0d5a57980fbb34a6a83b0e6"),
            ("RESERVE", "4bd135a741c8a31ac675fd9c97dd7898bd409319"),
            ("OBSERVE", "a65ea7b898f099d7870a5d6b3037958155c5f0c2"),
            ("MARK", "c1806426010ddd540500ceed08e180afd9cb1d92"),
            ("CLAIM", "5b40b2df1f4d4077e0561400dbe5c13e083389db"),
            ("SLOTS", "84dbcc7c641bb55d5f400a4a50c8db1e3cf93e10"),
        ] {
            assert_eq!(SHA.get(name).map(String::as_str), Some(sha), "{name}");
        }
    }
}
