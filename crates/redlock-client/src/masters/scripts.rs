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
            ("GRANT", "25864ab041dd8086808a3ce39db70674896c9962"),
            ("CONFIRM", "8969a9958604037efd6749833331f5e57d66e399"),
            ("RENEW", "f6879fcc6ab44f291c81d5ddfca4c6bbae2f2ce9"),
            ("RELEASE", "75df37a40504a1c2a4526dabaca533f8409fac62"),
            ("RESERVE", "5cc24b0dc6672d627c0a0bf4786655c0b6ba0f23"),
            ("OBSERVE", "d89dc54fbd67cb4d893421a7cce71e596ca65180"),
            ("MARK", "c1806426010ddd540500ceed08e180afd9cb1d92"),
            ("CLAIM", "5b40b2df1f4d4077e0561400dbe5c13e083389db"),
            ("SLOTS", "84dbcc7c641bb55d5f400a4a50c8db1e3cf93e10"),
        ] {
            assert_eq!(SHA.get(name).map(String::as_str), Some(sha), "{name}");
        }
    }
}
