//! The name by which the program was called: its own, or that of a plugin of kubectl.

use std::{ffi::OsStr, path::Path};

use clap::{
    Arg, Command,
    builder::{Resettable, Str, StyledStr},
};

/// A file of this name on the PATH is `kubectl redlock`.
const PLUGIN: &str = "kubectl-redlock";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    Redlock,
    Plugin,
}

impl Called {
    /// Determines the name from the first word of the command line.
    pub(super) fn by(program: Option<&OsStr>) -> Self {
        match program.and_then(|program| Path::new(program).file_stem()) {
            Some(name) if name == PLUGIN => Self::Plugin,
            _ => Self::Redlock,
        }
    }

    /// Returns the name of the program's file.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Redlock => "redlock",
            Self::Plugin => PLUGIN,
        }
    }

    /// Returns the same commands, with usage, help and examples as users type them under this name.
    pub(super) fn command(self, program: Command) -> Command {
        match self {
            Self::Redlock => program,
            Self::Plugin => {
                let names: Vec<String> = program
                    .get_subcommands()
                    .map(|command| command.get_name().to_owned())
                    .collect();
                let name: Str = PLUGIN.into();
                retyped(program, &names).name(name).bin_name("kubectl redlock")
            }
        }
    }
}

fn retyped(command: Command, names: &[String]) -> Command {
    let text = |text| of_plugin(text, names);
    let about = text(command.get_about());
    let long_about = text(command.get_long_about());
    let after_help = text(command.get_after_help());
    command
        .about(about)
        .long_about(long_about)
        .after_help(after_help)
        .mut_args(|arg| retyped_arg(arg, names))
        .mut_subcommands(|command| retyped(command, names))
}

fn retyped_arg(arg: Arg, names: &[String]) -> Arg {
    let text = |text| of_plugin(text, names);
    let (help, long_help) = (text(arg.get_help()), text(arg.get_long_help()));
    arg.help(help).long_help(long_help)
}

fn of_plugin(text: Option<&StyledStr>, names: &[String]) -> Resettable<StyledStr> {
    let text = text.map(|text| StyledStr::from(as_plugin(&text.to_string(), names)));
    text.into()
}

/// Replaces each `redlock COMMAND` by the form that users type for kubectl.
fn as_plugin(text: &str, names: &[String]) -> String {
    names.iter().fold(text.to_owned(), |text, name| {
        text.replace(&format!("redlock {name}"), &format!("kubectl redlock {name}"))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_file_name_selects_the_command() {
        for (program, called) in [
            (Some("kubectl-redlock"), Called::Plugin),
            (Some("/home/me/.krew/bin/kubectl-redlock"), Called::Plugin),
            (Some("redlock"), Called::Redlock),
            (Some("/opt/kubectl-redlock/redlock"), Called::Redlock),
            (None, Called::Redlock),
        ] {
            assert_eq!(Called::by(program.map(OsStr::new)), called, "{program:?}");
        }
    }

    #[test]
    fn every_text_of_the_plugin_is_as_it_is_typed() {
        let mut program = Called::Plugin.command(Cli::command());
        program.build();
        let names: Vec<String> = program
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        for command in program
            .get_subcommands_mut()
            .filter(|command| command.get_name() != "help")
        {
            let help = command.render_long_help().to_string();
            let usage = format!("Usage: kubectl redlock {}", command.get_name());
            assert!(help.contains(&usage), "{help}");
            let elsewhere = help.replace("kubectl redlock ", "");
            for name in &names {
                assert!(!elsewhere.contains(&format!("redlock {name}")), "{name}: {help}");
            }
        }
    }
}
