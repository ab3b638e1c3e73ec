//! `redlock install`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, Failure};

/// The running program, even if its file was replaced since its start.
const THIS: &str = "/proc/self/exe";

/// Copy this program to a file: the image contains no `cp`, and the image of an app contains no `redlock`.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  redlock install ./redlock-of-app")]
pub(super) struct InstallArgs {
    /// An existing file is replaced as a whole; its folder must exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &InstallArgs) -> Result<Exit, Failure> {
    let mut part = args.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    copy(&part, &args.file).map_err(|error| {
        // No partial file may stay behind. If it cannot be removed, the error of the copy is still reported.
        let _ = fs::remove_file(&part);
        Failure::new(
            Exit::Config,
            format!("installing {}: {error}", args.file.display()),
        )
    })?;
    Ok(Exit::Ok)
}

/// Copies this program with its permissions.
fn copy(part: &Path, file: &Path) -> io::Result<()> {
    fs::copy(THIS, part)?;
    fs::rename(part, file)
}
