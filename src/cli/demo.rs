//! `redlock demo`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, ValueEnum};

use super::{Exit, Failure, process::signals, session};
use redlock_demo::{DemoError, Report, Run, Screen};

/// Run real failures on this machine: five Redis masters, three replicas, measured takeovers. Takes less than a minute.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs redis-server. Leaves nothing behind.\n\nExample:\n  redlock demo --output json --timeline demo.svg"
)]
pub(super) struct DemoArgs {
    /// Format of the findings; json writes one object and nothing else to the standard output.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Seed that selects the masters to fail, to repeat a run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the run to FILE as an SVG: the holder of each lock over time, and the faults.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(super) async fn run(args: DemoArgs) -> Result<Exit, Failure> {
    let screen = match args.output {
        Output::Text => Screen::for_people(),
        Output::Json => Screen::aside(),
    };
    if let Some(path) = &args.timeline {
        can_be_written(path)?;
    }
    // The handlers are installed before any process is started, so that no signal leaves a process behind.
    let mut signals = signals()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let Run { report, timeline } = tokio::select! {
        run = redlock_demo::run(seed, screen) => run.map_err(|error| failed(&error))?,
        name = signals.next() => return Err(interrupted(name)),
    };
    print(&report, args.output)?;
    if let Some(path) = &args.timeline {
        fs::write(path, timeline).map_err(|error| unwritable(path, &error))?;
    }
    Ok(if report.ok { Exit::Ok } else { Exit::Unhealthy })
}

/// Checks before the run, which takes a minute, that the folder of the file exists and that the path is not a folder.
fn can_be_written(path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = fs::metadata(folder).map_err(|error| unwritable(path, &error))?;
    if folder.is_dir() && !path.is_dir() {
        Ok(())
    } else {
        Err(unwritable(path, &io::ErrorKind::IsADirectory.into()))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let message = format!(
        "--timeline {path}: the file cannot be written: {error}; name a file in a folder that exists"
    );
    Failure::new(Exit::Config, message)
}

fn interrupted(signal: &str) -> Failure {
    let number = if signal == "SIGINT" { 2 } else { 15 };
    let message = format!("the demo was ended by {signal}; its processes and its folder are gone");
    Failure::new(Exit::Signal(number), message)
}

fn failed(error: &DemoError) -> Failure {
    let exit = match error {
        // The machine lacks a requirement, which the message names.
        DemoError::Redis(_) | DemoError::Folder { .. } => Exit::Config,
        _ => Exit::Software,
    };
    Failure::caused(exit, error)
}

fn print(report: &Report, output: Output) -> Result<(), Failure> {
    let text = match output {
        Output::Text => report.text(),
        Output::Json => serde_json::to_string_pretty(report)
            .map(|text| text + "\n")
            .map_err(|e| Failure::new(Exit::Software, format!("writing the findings as JSON: {e}")))?,
    };
    session::print(&text)
}
