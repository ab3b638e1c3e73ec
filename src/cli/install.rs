//! `redlock install`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, Failure};

/// Also of a program whose file was replaced meanwhile.
const THIS: &str = "/proc/self/exe";

/// Copy this program to a file: the image has no `cp`, and that of an app no `redlock`.
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
        // No half of a file must be left, and the error of the removal must not hide the reason.
        let _ = fs::remove_file(&part);
        Failure::new(
            Exit::Config,
            format!("installing {}: {error}", args.file.display()),
        )
    })?;
    Ok(Exit::Ok)
}

/// With its permissions.
fn copy(part: &Path, file: &Path) -> io::Result<()> {
    fs::copy(THIS, part)?;
    fs::rename(part, file)
}
