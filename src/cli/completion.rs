//! `redlock completion`.

use clap::{Args, Command, ValueEnum, builder::PossibleValue};
use clap_complete::Shell;

use super::{Exit, Failure, called::Called, session};

/// Print the completion for a shell, or for kubectl.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(redlock completion bash)        # the same line in ~/.bashrc keeps it
  redlock completion zsh > _redlock        # into a folder of $fpath
  redlock completion fish > redlock.fish   # into ~/.config/fish/completions
  redlock completion kubectl > kubectl_complete-redlock   # in $PATH, +x")]
pub(super) struct CompletionArgs {
    #[arg(value_enum, value_name = "SHELL")]
    shell: For,
}

#[derive(Clone, Copy, Debug)]
enum For {
    Shell(Shell),
    /// As a plugin of it: kubectl completes for every shell.
    Kubectl,
}

/// The script that kubectl runs to complete the words after `kubectl redlock`.
const OF_KUBECTL: &str = "\
#!/bin/sh
# Completion of kubectl redlock: an executable file kubectl_complete-redlock in a folder of the PATH.
exec kubectl redlock __complete \"$@\"
";

impl ValueEnum for For {
    fn value_variants<'a>() -> &'a [Self] {
        const {
            &[
                Self::Shell(Shell::Bash),
                Self::Shell(Shell::Elvish),
                Self::Shell(Shell::Fish),
                Self::Shell(Shell::PowerShell),
                Self::Shell(Shell::Zsh),
                Self::Kubectl,
            ]
        }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Shell(shell) => shell.to_possible_value(),
            Self::Kubectl => Some(PossibleValue::new("kubectl")),
        }
    }
}

pub(super) fn run(args: &CompletionArgs, mut program: Command, called: Called) -> Result<Exit, Failure> {
    match args.shell {
        For::Kubectl => session::print(OF_KUBECTL)?,
        For::Shell(shell) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, called.file(), &mut script);
            session::print(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(Exit::Ok)
}
