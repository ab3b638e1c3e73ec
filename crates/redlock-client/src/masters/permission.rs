//! Detects permissions that a server refuses to its user, and names the script and the missing rule of the
//! documented ACL line.
//!
//! For display only. A refused permission is an unknown vote, like every other error.

use std::collections::BTreeMap;

use redlock_core::{Keyspace, Unknown, script::Script};

/// The scripts that lacked a permission when they last ran on a connection.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<&'static str, Unknown>);

impl Refusals {
    /// Records the result of one run of a script. A result that does not depend on permissions changes
    /// nothing.
    pub(crate) fn note<T>(&mut self, script: &Script, result: &Result<T, Unknown>) {
        match result {
            Ok(_) => drop(self.0.remove(script.name)),
            Err(unknown) if unknown.is_no_permission() => drop(self.0.insert(script.name, unknown.clone())),
            Err(_) => {}
        }
    }

    pub(crate) fn first(&self) -> Option<&Unknown> {
        self.0.values().next()
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
        let mut refusals = Refusals::default();
        let refused: Result<(), Unknown> = Err(Unknown::server("NOPERM", "No permissions to access a key"));
        refusals.note(&GRANT, &refused);
        refusals.note(&RESERVE, &Ok(()));
        refusals.note::<()>(&GRANT, &Err(Unknown::TimedOut(500)));
        assert_eq!(refusals.first(), refused.as_ref().err());
        refusals.note(&GRANT, &Ok(()));
        assert_eq!(refusals.first(), None);
    }
}
