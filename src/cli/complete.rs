//! Completes words for kubectl, which runs an executable `kubectl_complete-redlock` with the words that were typed. The
//! answer has one line for each choice and its description, and ends with a directive for the shell.

use std::{ffi::OsString, process::ExitCode};

use clap::{Arg, Command};

use super::{Exit, session};

/// Directives of cobra, which kubectl reads.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";

/// The choices for the last word.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choices {
    /// The choices, each with its description.
    choices: Vec<(String, String)>,
    /// Whether names of files are choices too.
    files: bool,
}

pub(super) fn run(mut program: Command, words: &[OsString]) -> ExitCode {
    program.build();
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match session::print(&answer(&program, &words)) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => failure.report(),
    }
}

/// Returns the answer to `kubectl_complete-redlock WORD…`.
fn answer(program: &Command, words: &[String]) -> String {
    let found = choices(program, words);
    let mut text = String::new();
    for (choice, description) in found.choices {
        let line = description.lines().next().unwrap_or_default();
        text += &format!("{choice}\t{line}\n");
    }
    text + if found.files { FILES } else { NO_FILES } + "\n"
}

fn choices(program: &Command, words: &[String]) -> Choices {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let Some(command) = before.iter().find_map(|word| program.find_subcommand(word)) else {
        return commands(program, last);
    };
    let below = before.iter().find_map(|word| command.find_subcommand(word));
    let command = below.unwrap_or(command);
    if command.has_subcommands() && !last.starts_with('-') {
        return commands(command, last);
    }
    if before.iter().any(|word| word == "--") {
        return Choices {
            choices: Vec::new(),
            files: true,
        };
    }
    if let Some((flag, value)) = last.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        let of_flag = option(command, flag).map(|arg| values(arg, value, &format!("{flag}=")));
        return of_flag.unwrap_or_default();
    }
    if let Some(arg) = before.last().and_then(|flag| option(command, flag)) {
        return values(arg, last, "");
    }
    if last.starts_with('-') {
        return flags(command, last);
    }
    let positional = command.get_positionals().next();
    positional.map(|arg| values(arg, last, "")).unwrap_or_default()
}

fn commands(program: &Command, begun: &str) -> Choices {
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    let fitting = shown.filter(|command| command.get_name().starts_with(begun));
    let choice = |command: &Command| {
        let about = command.get_about().map(ToString::to_string);
        (command.get_name().to_owned(), about.unwrap_or_default())
    };
    Choices {
        choices: fitting.map(choice).collect(),
        files: false,
    }
}

fn flags(command: &Command, begun: &str) -> Choices {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let choice = |arg: &Arg| {
        let flag = format!("--{}", arg.get_long()?);
        let help = arg.get_help().map(ToString::to_string);
        flag.starts_with(begun).then(|| (flag, help.unwrap_or_default()))
    };
    Choices {
        choices: shown.filter_map(choice).collect(),
        files: false,
    }
}

/// Returns the option of this name, if it takes a value.
fn option<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    let mut all = command
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values());
    all.find(|arg| {
        let long = arg.get_long().is_some_and(|long| flag == format!("--{long}"));
        long || arg.get_short().is_some_and(|short| flag == format!("-{short}"))
    })
}

fn values(arg: &Arg, begun: &str, prefix: &str) -> Choices {
    let possible = arg.get_possible_values();
    let fitting = possible
        .iter()
        .filter(|value| value.get_name().starts_with(begun));
    let choice = |value: &clap::builder::PossibleValue| {
        let help = value.get_help().map(ToString::to_string);
        (format!("{prefix}{}", value.get_name()), help.unwrap_or_default())
    };
    let names = arg.get_value_names().unwrap_or_default();
    Choices {
        choices: fitting.map(choice).collect(),
        files: names.iter().any(|name| ["FILE", "DIR"].contains(&name.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, called::Called};

    fn answered(words: &[&str]) -> String {
        let mut program = Called::Plugin.command(Cli::command());
        program.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        answer(&program, &words)
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        for (words, choice, directive) in [
            (&["sta"][..], "status\t", NO_FILES),
            (&[], "doctor\t", NO_FILES),
            (&[""], "hand-over\t", NO_FILES),
            (&["status", "--cont"], "--context\t", NO_FILES),
            (&["status", "-n", "billing", "--out"], "--output\t", NO_FILES),
            (&["status", "--output", "j"], "json\t", NO_FILES),
            (&["status", "-o", ""], "table\t", NO_FILES),
            (&["status", "--output=j"], "--output=json\t", NO_FILES),
            (&["completion", "z"], "zsh\t", NO_FILES),
            (&["fence", "re"], "release\t", NO_FILES),
            (&["fence", "list", "-o", "j"], "json\t", NO_FILES),
            (&["status", "--kubeconfig", ""], "", FILES),
            (&["run", "report", "--", ""], "", FILES),
        ] {
            let text = answered(words);
            assert!(
                text.lines().any(|line| line.starts_with(choice)),
                "{words:?}: {text}"
            );
            assert_eq!(text.lines().last(), Some(directive), "{words:?}");
        }
    }

    #[test]
    fn an_option_that_does_not_fit_is_no_choice() {
        for words in [
            &["nonsense"][..],
            &["status", "--nonsense"],
            &["status", "-o", "x"],
        ] {
            assert_eq!(answered(words), ":4\n", "{words:?}");
        }
    }
}
