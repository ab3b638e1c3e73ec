//! `redlock man`.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use super::{Exit, Failure, session};

/// Print the manual page of a command, or write all of them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock man status | man -l -
  redlock man --directory .   # for packages: redlock.1, redlock-status.1, …")]
pub(super) struct ManArgs {
    /// The command; the page of the program when none is named.
    #[arg(value_name = "COMMAND", conflicts_with = "directory")]
    command: Option<String>,
    /// Write the pages of the program and of all its commands into this folder.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn run(args: &ManArgs, program: Command) -> Result<Exit, Failure> {
    // The page of `redlock help` would contain less than the output of `redlock help`.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    match (&args.directory, &args.command) {
        (Some(directory), _) => {
            for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
                write(command, directory)?;
                for below in command.get_subcommands() {
                    write(below, directory)?;
                }
            }
            write(&program, directory)?;
        }
        (None, None) => print(&program)?,
        (None, Some(name)) => {
            let command = program.find_subcommand(name);
            print(command.ok_or_else(|| unknown(name, &program))?)?;
        }
    }
    Ok(Exit::Ok)
}

/// Returns the file name and the text of a page.
fn page(command: &Command) -> Result<(String, Vec<u8>), Failure> {
    // Printed without filling: an example whose lines were joined could not be copied.
    let mut examples = Roff::new();
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        examples.control("SH", ["EXAMPLES"]).control("nf", []);
        // The heading replaces these lines.
        for line in text
            .to_string()
            .lines()
            .filter(|line| !line.starts_with("Example"))
        {
            examples.text([roman(line)]);
        }
        examples.control("fi", []);
    }
    let command = command
        .clone()
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    let page = Man::new(command)
        .source(concat!("redlock ", env!("CARGO_PKG_VERSION")))
        .manual("redlock");
    let mut text = Vec::new();
    let rendered = page
        .render(&mut text)
        .and_then(|()| examples.to_writer(&mut text));
    rendered.map_err(|e| Failure::new(Exit::Software, format!("writing a manual page: {e}")))?;
    Ok((page.get_filename(), text))
}

fn print(command: &Command) -> Result<(), Failure> {
    let (_, text) = page(command)?;
    session::print(&String::from_utf8_lossy(&text))
}

fn write(command: &Command, directory: &Path) -> Result<(), Failure> {
    let (name, text) = page(command)?;
    std::fs::write(directory.join(&name), text).map_err(|e| {
        let message = format!("--directory {}: writing {name}: {e}", directory.display());
        Failure::new(Exit::Config, message)
    })
}

fn unknown(name: &str, program: &Command) -> Failure {
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(Command::get_name).collect();
    let message = format!(
        "there is no command {name:?}; the commands are {}",
        names.join(", ")
    );
    Failure::new(Exit::Usage, message)
}
