//! `redlock replay`: gives the inputs that `REDLOCK_TRACE` recorded to the same code again. A command for
//! developers, which the help does not list.

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use clap::Args;
use redlock_client::trace;

use super::{Exit, Failure, empty::is_set, session};
use crate::lease::trace::{Replay, Summary};

/// The variable that names the file. Each process appends its id to the name.
const VARIABLE: &str = "REDLOCK_TRACE";

/// Replay recorded inputs in this build, and compare every output with the recorded one.
#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// Files that processes wrote with REDLOCK_TRACE=FILE: FILE.PID.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Records this process if the environment requests it.
pub(super) fn record() -> Result<(), Failure> {
    let Some(path) = env::var_os(VARIABLE).filter(|_| is_set(VARIABLE)) else {
        return Ok(());
    };
    match trace::record(Path::new(&path)) {
        Ok(_) => Ok(()),
        Err(error) => {
            let path = Path::new(&path).display();
            let message = format!("{VARIABLE}={path}: creating the file of the trace: {error}");
            Err(Failure::new(Exit::Config, message))
        }
    }
}

pub(super) fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let mut total = Summary::default();
    let mut bad = 0;
    for path in &args.files {
        let name = path.display();
        match replay(path) {
            Ok(summary) => {
                total += summary;
                session::print(&format!("{name}: {}\n", text(summary)))?;
            }
            Err(Bad::File(error)) => {
                return Err(Failure::new(Exit::Config, format!("{name}: {error}")));
            }
            Err(Bad::Trace(error)) => {
                bad += 1;
                session::print(&format!("{name}: {error}\n"))?;
            }
        }
    }
    let files = args.files.len();
    session::print(&format!("{files} files, {}, {bad} divergences\n", text(total)))?;
    Ok(if bad == 0 { Exit::Ok } else { Exit::Unhealthy })
}

enum Bad {
    File(std::io::Error),
    Trace(crate::lease::trace::ReplayError),
}

fn replay(path: &Path) -> Result<Summary, Bad> {
    let mut file = BufReader::new(File::open(path).map_err(Bad::File)?);
    let (mut replay, mut line) = (Replay::default(), String::new());
    // A process that was killed leaves an incomplete last line.
    while file.read_line(&mut line).map_err(Bad::File)? > 0 && line.ends_with('\n') {
        replay.take(line.trim_end()).map_err(Bad::Trace)?;
        line.clear();
    }
    Ok(replay.summary())
}

fn text(summary: Summary) -> String {
    let Summary {
        engines,
        machines,
        inputs,
        outputs,
    } = summary;
    format!("{engines} engines, {machines} machines, {inputs} inputs, {outputs} outputs equal")
}
