//! Detects scripts that a server refuses: its user lacks a permission, which is named with the missing rule of the
//! documented ACL line, or the server refuses all writes.
//!
//! For display only. A refusal is an unknown vote, like every other error.

use std::{collections::BTreeMap, time::Duration};

use redlock_core::{BootInstant, Keyspace, Unknown, reply::Value, script::Script};

/// The time after which a refused write no longer counts, unless another one is refused. Candidates that cannot acquire a lock
/// try again within seconds.
const WRITE_REFUSED: Duration = Duration::from_secs(30);

/// The refusals of the server on a connection.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The scripts that lacked a permission when they last ran.
    permissions: BTreeMap<&'static str, Unknown>,
    /// The last refused write, if no later one succeeded.
    write: Option<(BootInstant, Unknown)>,
}

impl Refusals {
    /// Records the result of one run of a script. A result that depends on neither permissions nor writes changes
    /// nothing.
    pub(crate) fn note(&mut self, script: &Script, result: &Result<Value, Unknown>, now: BootInstant) {
        match result {
            Ok(reply) => {
                self.permissions.remove(script.name);
                // Most replies follow no refusal, and are not read twice.
                if self.write.is_some() && grants(reply) {
                    self.write = None;
                }
            }
            Err(unknown) if unknown.is_no_permission() => {
                self.permissions.insert(script.name, unknown.clone());
            }
            Err(unknown) if unknown.is_refused_write() => self.write = Some((now, unknown.clone())),
            Err(_) => {}
        }
    }

    /// Returns a missing permission.
    pub(crate) fn permission(&self) -> Option<&Unknown> {
        self.permissions.values().next()
    }

    /// Returns why writes are refused.
    pub(crate) fn write(&self, now: BootInstant) -> Option<&Unknown> {
        let (_, unknown) = self.write.as_ref()?;
        self.write_until().filter(|until| now < *until).map(|_| unknown)
    }

    /// Returns the time until which the last refused write counts.
    pub(crate) fn write_until(&self) -> Option<BootInstant> {
        self.write.as_ref().map(|(at, _)| *at + WRITE_REFUSED)
    }
}

/// Reports whether a lease was written: other scripts may succeed without a write, or with one that needs no memory.
fn grants(reply: &Value) -> bool {
    match reply {
        Value::Text(text) => text == b"granted",
        Value::Array(items) => items.iter().any(grants),
        Value::Int(_) | Value::Nil => false,
    }
}

/// Adds the missing rule to the error of a refused permission.
pub(crate) fn explained(unknown: Unknown, script: Option<&Script>, keys: &Keyspace) -> Unknown {
    match unknown {
        Unknown::Server { code, detail } if code == "NOPERM" => {
            let of = script.map_or_else(String::new, |script| {
                format!(", which the script {} needs", script.name.to_lowercase())
            });
            let missing = match rules(&detail, script, keys) {
                Some(rules) => format!("; the user lacks the ACL rule {rules}{of}: see docs/redis-acl.md"),
                None => "; compare the user's ACL with the line of docs/redis-acl.md".to_owned(),
            };
            Unknown::Server {
                code,
                detail: detail.trim_end_matches('.').to_owned() + &missing,
            }
        }
        other => other,
    }
}

fn rules(detail: &str, script: Option<&Script>, keys: &Keyspace) -> Option<String> {
    let run = ["run the '", "run this command"];
    if run.iter().any(|text| detail.contains(text)) {
        let named = detail.split("run the '").nth(1);
        let named = named.and_then(|rest| rest.split('\'').next());
        let commands = match (named, script) {
            (Some(named), _) => vec![named],
            (None, Some(script)) => commands(script, detail),
            (None, None) => Vec::new(),
        };
        let rules: Vec<String> = commands
            .iter()
            .map(|command| format!("+{}", command.to_lowercase()))
            .collect();
        return (!rules.is_empty()).then(|| rules.join(" or "));
    }
    if detail.contains("channel") {
        return Some(format!("&{}", keys.channel));
    }
    let prefix = keys.prefix();
    detail.contains("key").then(|| format!("~{prefix}:*"))
}

/// Returns the commands on the line that an error of a script names: `…@user_script:33…`.
pub(crate) fn commands<'a>(script: &'a Script, detail: &str) -> Vec<&'a str> {
    let number = detail.split("user_script:").nth(1).map(str::trim_start);
    let number = number.and_then(|rest| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse::<usize>()
            .ok()
    });
    let line = number.and_then(|number| script.source.lines().nth(number.checked_sub(1)?));
    let called = line.unwrap_or_default().split("call('").skip(1);
    let mut called: Vec<&str> = called.filter_map(|rest| rest.split('\'').next()).collect();
    called.dedup();
    called
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_core::script::{GRANT, RESERVE};

    fn publishes() -> usize {
        let mut lines = RESERVE.source.lines();
        lines.position(|line| line.contains("'PUBLISH'")).unwrap() + 1
    }

    #[test]
    fn the_line_of_an_error_names_the_command() {
        let line = publishes();
        for detail in [
            format!("can't run this command script: cf04, on @user_script:{line}."),
            format!("Error running script (f_cf04): @user_script:{line}: @user_script: {line}: denied"),
        ] {
            assert_eq!(commands(&RESERVE, &detail), ["PUBLISH"], "{detail}");
        }
        for detail in ["", "on @user_script:x", "on @user_script:9999."] {
            assert!(commands(&RESERVE, detail).is_empty(), "{detail}");
        }
    }

    #[test]
    fn a_refusal_names_the_rule_that_is_missing() {
        let keys = Keyspace::new("team");
        let in_script = format!(
            "The user executing the script can't run this command or subcommand script: cf04, on @user_script:{}.",
            publishes()
        );
        for (code, detail, script, rule) in [
            (
                "NOPERM",
                "User a has no permissions to run the 'evalsha' command",
                Some(&*RESERVE),
                "+evalsha",
            ),
            (
                "NOPERM",
                "this user has no permissions to run the 'select' command or its subcommand",
                None,
                "+select",
            ),
            (
                "ERR",
                in_script.as_str(),
                Some(&*RESERVE),
                "+publish, which the script reserve needs",
            ),
            (
                "ERR",
                "ACL failure in script: User a has no permissions to run the 'publish' command script: 5c, on @user_script:42.",
                Some(&*RESERVE),
                "+publish, which the script reserve needs",
            ),
            (
                "ERR",
                "ACL failure in script: No permissions to access a channel script: 5c, on @user_script:42.",
                Some(&*RESERVE),
                "&team:released, which the script reserve needs",
            ),
            (
                "NOPERM",
                "No permissions to access a key",
                Some(&*GRANT),
                "~team:*, which the script grant needs",
            ),
            (
                "NOPERM",
                "No permissions to access a channel",
                None,
                "&team:released",
            ),
        ] {
            let text = explained(Unknown::server(code, detail), script, &keys).to_string();
            assert!(text.starts_with("server error NOPERM: "), "{text}");
            assert!(text.contains(&format!("lacks the ACL rule {rule}")), "{text}");
            assert!(text.contains("docs/redis-acl.md"), "{text}");
        }
        let odd = explained(Unknown::server("NOPERM", "denied"), None, &keys).to_string();
        assert!(odd.contains("compare the user's ACL"), "{odd}");
        let other = Unknown::server("OOM", "command not allowed");
        assert_eq!(explained(other.clone(), Some(&GRANT), &keys), other);
    }

    #[test]
    fn a_refusal_stands_until_the_same_script_runs() {
        let now = BootInstant::default();
        let ok = || Ok(Value::Nil);
        let mut refusals = Refusals::default();
        let refused = Unknown::server("NOPERM", "No permissions to access a key");
        refusals.note(&GRANT, &Err(refused.clone()), now);
        refusals.note(&RESERVE, &ok(), now);
        refusals.note(&GRANT, &Err(Unknown::TimedOut(500)), now);
        assert_eq!(refusals.permission(), Some(&refused));
        assert_eq!(refusals.write(now), None);
        refusals.note(&GRANT, &ok(), now);
        assert_eq!(refusals.permission(), None);
    }

    #[test]
    fn a_refused_write_stands_until_a_lease_is_written() {
        let mut refusals = Refusals::default();
        let refused = Unknown::server("OOM", "command not allowed");
        let mut now = BootInstant::default();
        for _ in 0..3 {
            refusals.note(&GRANT, &Err(refused.clone()), now);
            // A lock that another candidate holds is refused without a write.
            refusals.note(&GRANT, &Ok(Value::Array(vec![Value::Nil])), now);
            now = now + WRITE_REFUSED - Duration::from_secs(1);
            assert_eq!(refusals.write(now), Some(&refused));
        }
        assert_eq!(refusals.write(now + Duration::from_secs(1)), None);
        let granted = Value::Array(vec![Value::Array(vec![Value::Text(b"granted".to_vec())])]);
        refusals.note(&GRANT, &Ok(granted), now);
        assert_eq!(refusals.write(now), None);
    }
}
