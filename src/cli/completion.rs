//! `redlock completion`.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{Exit, Failure, session};

/// Print the completion for a shell.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(redlock completion bash)        # the same line in ~/.bashrc keeps it
  redlock completion zsh > _redlock        # into a folder of $fpath
  redlock completion fish > redlock.fish   # into ~/.config/fish/completions")]
pub(super) struct CompletionArgs {
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &CompletionArgs, mut program: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "redlock", &mut script);
    session::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
