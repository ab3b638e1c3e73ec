//! The Lua scripts. Each writing script begins with the same check: the seal, the fingerprint with the quorum id, `not_after`; the two that
//! write to a master without a seal begin with a check of the run, of the missing seal and of `not_after`.

use std::sync::LazyLock;

/// A script and the name of it that EVALSHA takes.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    pub(crate) sha: String,
}

impl Script {
    fn new(name: &'static str, parts: &[&str]) -> Self {
        let source = parts.concat();
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { name, source, sha }
    }

    /// The command that runs it and what names it, whether or not it ran on this connection before.
    pub(crate) fn call(&self, before: bool) -> (&'static str, &str) {
        if before {
            ("EVALSHA", &self.sha)
        } else {
            ("EVAL", &self.source)
        }
    }
}

macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(stringify!($name), &[$(include_str!(concat!("scripts/", $file))),+]));)+
    };
}

scripts! {
    GRANT = "fields_marks.lua" "preamble.lua" "obstacle.lua" "cluster.lua" "grant.lua";
    CONFIRM = "fields_none.lua" "preamble.lua" "confirm.lua";
    RENEW = "fields_none.lua" "preamble.lua" "obstacle.lua" "cluster.lua" "renew.lua";
    RELEASE = "fields_none.lua" "preamble.lua" "cluster.lua" "release.lua";
    RESERVE = "fields_none.lua" "preamble.lua" "cluster.lua" "reserve.lua";
    OBSERVE = "fields_none.lua" "preamble.lua" "obstacle.lua" "cluster.lua" "observe.lua";
    BREAK = "fields_none.lua" "preamble.lua" "break.lua";
    MARK = "fields_none.lua" "preamble.lua" "mark.lua";
    CLAIM = "fields_none.lua" "preamble.lua" "claim.lua";
    SLOTS = "fields_none.lua" "preamble.lua" "slots.lua";
    LOOK = "history.lua" "look.lua";
    REGISTERS = "registers.lua";
    SCAN = "scan.lua";
    INSPECT = "inspect.lua";
    SCRATCH = "scratch.lua";
    PROBE = "unsealed.lua" "probe.lua";
    SEAL = "unsealed.lua" "history.lua" "seal.lua";
    RETIRE = "retire.lua";
}
