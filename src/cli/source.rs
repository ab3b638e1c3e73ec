//! Names the value that a message is about as the user wrote it: by the variable where a variable gave it, and not by the flag that
//! the variable stands for.

use std::ffi::{OsStr, OsString};

use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

/// A flag whose value is that of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FromVariable {
    /// Such as `--tls-ca`.
    flag: String,
    /// Such as `--tls-ca <FILE>`.
    usage: String,
    variable: String,
}

/// Returns the flags of a parsed command line that variables gave.
pub(super) fn from_variables(command: &Command, matches: &ArgMatches) -> Vec<FromVariable> {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        (command, matches) = (next, below);
    }
    let is_from_variable = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        // clap panics for the source of an argument that it does not know.
        let source = matches
            .try_contains_id(id)
            .ok()
            .and_then(|_| matches.value_source(id));
        source == Some(ValueSource::EnvVariable)
    };
    let args = command.get_arguments().filter(is_from_variable);
    args.filter_map(from_variable).collect()
}

fn from_variable(arg: &Arg) -> Option<FromVariable> {
    Some(FromVariable {
        flag: format!("--{}", arg.get_long()?),
        usage: arg.to_string(),
        variable: arg.get_env()?.to_string_lossy().into_owned(),
    })
}

/// Returns a message of a command with the names of variables in place of the flags that they stand for.
pub(super) fn named(message: &str, given: &[FromVariable]) -> String {
    let mut named = message.to_owned();
    for FromVariable { flag, variable, .. } in given {
        let parts: Vec<&str> = named.split(flag.as_str()).collect();
        let mut text = String::new();
        for (index, part) in parts.iter().enumerate() {
            let is_longer = part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
            if index > 0 {
                text.push_str(if is_longer { flag } else { variable });
            }
            text.push_str(part);
        }
        named = text;
    }
    named
}

/// Names the variables in an error of the parser, which knows flags alone.
pub(super) fn name_variables(error: &mut clap::Error, command: &Command, words: &[OsString]) {
    let command = subcommand(command, words);
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let usages: Vec<(String, String)> = command
        .get_arguments()
        .filter(|arg| is_missing || is_given_by_variable(arg, words))
        .filter_map(from_variable)
        .map(|FromVariable { usage, variable, .. }| {
            let written = if is_missing {
                format!("{usage} (or the variable {variable})")
            } else {
                variable
            };
            (usage, written)
        })
        .collect();
    let written = |text: &String| {
        let known = usages.iter().find(|(usage, _)| usage == text);
        known.map_or_else(|| text.clone(), |(_, written)| written.clone())
    };
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        let value = match error.get(kind) {
            Some(ContextValue::String(text)) => ContextValue::String(written(text)),
            Some(ContextValue::Strings(texts)) => ContextValue::Strings(texts.iter().map(written).collect()),
            _ => continue,
        };
        error.insert(kind, value);
    }
}

/// Returns the command that the words name.
pub(super) fn subcommand<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    let mut command = command;
    for word in words.iter().skip(1) {
        match command.find_subcommand(word) {
            Some(next) => command = next,
            None => break,
        }
    }
    command
}

/// Reports whether a variable is set for this argument, and no word gives it.
fn is_given_by_variable(arg: &Arg, words: &[OsString]) -> bool {
    let typed = |word: &OsString| {
        let word = word.to_str().and_then(|word| word.strip_prefix("--"));
        word.is_some_and(|word| word.split('=').next() == arg.get_long())
    };
    let variable = arg.get_env().map(OsStr::to_owned);
    let own = words.iter().take_while(|word| *word != "--");
    variable.is_some_and(|name| std::env::var_os(name).is_some()) && !own.into_iter().any(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_named_in_place_of_its_flag() {
        let given = [FromVariable {
            flag: "--tls-ca".into(),
            usage: "--tls-ca <FILE>".into(),
            variable: "REDLOCK_TLS_CA".into(),
        }];
        for (message, expected) in [
            ("--tls-ca /x: cannot be read", "REDLOCK_TLS_CA /x: cannot be read"),
            (
                "give --tls-ca; or --tls-ca.",
                "give REDLOCK_TLS_CA; or REDLOCK_TLS_CA.",
            ),
            ("--tls-cas and --tls-ca-x", "--tls-cas and --tls-ca-x"),
            ("lock l: no quorum", "lock l: no quorum"),
        ] {
            assert_eq!(named(message, &given), expected);
        }
        assert_eq!(named("--tls-ca /x", &[]), "--tls-ca /x");
    }
}
