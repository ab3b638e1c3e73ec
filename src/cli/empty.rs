//! Removes empty input before the arguments are parsed: a flag or a variable without a value counts as absent, as in
//! `--tls-ca "$CA"` or in a compose file with `${CA:-}`. Each is reported: its user may have meant a value.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
};

use clap::{Arg, Command};

use super::{Exit, Failure};
use crate::operator::given::given;

/// Reports whether a text from outside counts as absent. A text that is not UTF-8 is present.
fn is_empty(text: &OsStr) -> bool {
    text.to_str().is_some_and(|text| given(text).is_none())
}

/// Returns the value of a variable as it is, or `None` if it is empty or not set.
pub(super) fn value(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !is_empty(value))
}

/// Reports whether a variable is set, and not empty.
pub(super) fn is_set(variable: &str) -> bool {
    value(variable).is_some()
}

/// Returns the value of a variable without the white space around it, or `None` if it is empty or not set.
pub(super) fn variable(name: &str) -> Result<Option<String>, Failure> {
    let Some(value) = env::var_os(name) else {
        return Ok(None);
    };
    match value.to_str() {
        Some(text) => Ok(given(text).map(str::to_owned)),
        None => Err(Failure::new(
            Exit::Config,
            format!("{name}: its value is not text in UTF-8"),
        )),
    }
}

/// Returns the entries of a list that is separated by commas, without the white space around them and without empty ones.
pub(super) fn entries<T: FromIterator<String>>(list: &[String]) -> T {
    let entries = list.iter().filter_map(|entry| given(entry));
    entries.map(str::to_owned).collect()
}

/// Reports whether the variable of an argument is set and empty.
fn has_empty_variable(arg: &Arg) -> bool {
    let value = arg.get_env().and_then(env::var_os);
    value.is_some_and(|value| is_empty(&value))
}

/// Returns the command without the variables that are set and empty: clap would read them as values.
pub(super) fn without_empty_variables(command: Command) -> Command {
    let without = |arg: Arg| match has_empty_variable(&arg) {
        true => arg.env(None::<&'static str>),
        false => arg,
    };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

/// Returns the variables of one command that are set and empty.
pub(super) fn empty_variables(command: &Command) -> Vec<String> {
    let args = command.get_arguments().filter(|arg| has_empty_variable(arg));
    args.filter_map(|arg| Some(arg.get_env()?.to_string_lossy().into_owned()))
        .collect()
}

/// Writes a line for each flag and variable that is empty.
pub(super) fn report(names: &[String]) {
    for name in names {
        // If the standard error cannot be written, the command runs all the same.
        let _ = writeln!(std::io::stderr(), "redlock: {name} is empty and counts as absent");
    }
}

/// The words of a command line without the flags whose value is empty.
pub(super) struct CommandWords {
    pub(super) kept: Vec<OsString>,
    /// The flags that were removed.
    pub(super) removed: Vec<String>,
}

/// Removes the flags whose value is empty. Words after `--` belong to another program.
pub(super) fn without_empty_flags(command: &Command, words: Vec<OsString>) -> CommandWords {
    let mut command = command;
    let mut kept = Vec::with_capacity(words.len());
    let mut removed = Vec::new();
    let mut words = words.into_iter().peekable();
    kept.extend(words.next());
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word);
            kept.extend(words);
            break;
        }
        if let Some(next) = command.find_subcommand(&word) {
            command = next;
        } else if let Some((name, value)) = flag_of(&word) {
            let takes_value = takes_value(command, name);
            let has_empty_value = takes_value
                && match value {
                    Some(value) => given(value).is_none(),
                    None => words.next_if(|next| is_empty(next)).is_some(),
                };
            if has_empty_value {
                let flag = word.to_string_lossy();
                removed.push(flag.split('=').next().unwrap_or_default().to_owned());
                continue;
            }
            // The value of a flag is no flag.
            if takes_value && value.is_none() {
                kept.push(word);
                kept.extend(words.next());
                continue;
            }
        }
        kept.push(word);
    }
    CommandWords { kept, removed }
}

/// Splits `--name`, `--name=value` and `-n`.
fn flag_of(word: &OsStr) -> Option<(&str, Option<&str>)> {
    let word = word.to_str()?;
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    Some(
        name.split_once('=')
            .map_or((name, None), |(name, value)| (name, Some(value))),
    )
}

fn takes_value(command: &Command, name: &str) -> bool {
    let is_named = |arg: &&Arg| {
        let is_short = arg.get_short().is_some_and(|short| name.chars().eq([short]));
        is_short
            || arg.get_long() == Some(name)
            || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
    };
    let arg = command.get_arguments().find(is_named);
    arg.is_some_and(|arg| arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn kept(words: &[&str]) -> Vec<String> {
        let words = words.iter().map(Into::into).collect();
        let kept = without_empty_flags(&Cli::command(), words).kept.into_iter();
        kept.map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn removed_flags_are_named_as_they_were_written() {
        let words = ["redlock", "status", "--tls-ca=", "-n", "", "--tls-key", " "];
        let words = without_empty_flags(&Cli::command(), words.map(OsString::from).to_vec());
        assert_eq!(words.removed, ["--tls-ca", "-n", "--tls-key"]);
    }

    #[test]
    fn flag_without_a_value_is_removed() {
        for (words, expected) in [
            (
                &["redlock", "status", "--tls-ca", ""][..],
                &["redlock", "status"][..],
            ),
            (&["redlock", "status", "--tls-ca="], &["redlock", "status"]),
            (
                &["redlock", "status", "--tls-ca= \n", "-n", " ", "l"],
                &["redlock", "status", "l"],
            ),
            (&["redlock", "run", "-w", "", "l"], &["redlock", "run", "l"]),
            (&["redlock", "run", "--wait=", "l"], &["redlock", "run", "l"]),
            (
                &["redlock", "fence", "release", "--state-dir", ""],
                &["redlock", "fence", "release"],
            ),
        ] {
            assert_eq!(kept(words), expected, "{words:?}");
        }
    }

    #[test]
    fn entries_of_a_list_may_be_spaced_and_empty() {
        let list = ["a", " b", "", "c ", " "].map(str::to_owned).to_vec();
        assert_eq!(entries::<Vec<String>>(&list), ["a", "b", "c"]);
    }

    #[test]
    fn all_other_words_stay() {
        for words in [
            &["redlock", "run", "l", "--", "grep", "--tls-ca", ""][..],
            &["redlock", "run", "-n", "", "l"],
            &["redlock", "break", ""],
            &["redlock", "run", "l", "-c", "--tls-ca", "--quiet"],
            &["redlock", "status", "--unknown", ""],
            &["redlock"],
            &[],
        ] {
            assert_eq!(kept(words), words, "{words:?}");
        }
    }
}
