//! The names of the scripts that EVALSHA takes.

use std::{collections::BTreeMap, sync::LazyLock};

use redlock_core::script::{ALL, Script};

static SHA: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let sha = |script: &Script| redis::Script::new(&script.source).get_hash().to_owned();
    ALL.iter().map(|script| (script.name, sha(script))).collect()
});

/// The command that runs a script and what names it, whether or not it ran on this connection before.
pub(super) fn call(script: &'static Script, before: bool) -> (&'static str, &'static str) {
    match SHA.get(script.name).filter(|_| before) {
        Some(sha) => ("EVALSHA", sha),
        None => ("EVAL", &script.source),
    }
}
