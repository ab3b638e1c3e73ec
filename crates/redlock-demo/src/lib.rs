//! Runs `redlock demo`: five masters, three replicas, real failures on this machine, and an independent observer.
//!
//! Owns every process and file that it starts or creates, and removes all of them. Never inspects the replicas from
//! inside: the report contains only observations from outside.

mod claims;
mod error;
mod guard;
mod http;
mod journal;
mod manifests;
mod observer;
mod replica;
mod report;
mod screen;
mod script;
mod stage;
mod tenure;
mod timeline;
mod verdict;

pub use error::DemoError;
pub use report::Report;
pub use screen::Screen;

use redlock_client::clock;
use report::Findings;
use stage::Stage;
use timeline::Frame;

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    pub report: Report,
    /// The holders and faults over time, as an SVG.
    pub timeline: String,
}

/// Plays the demo once. The report contains the failures of the run itself.
///
/// # Errors
/// Returns an error if the demo cannot start. Dropping the future stops all processes and removes all files.
pub async fn run(seed: u64, screen: Screen) -> Result<Run, DemoError> {
    let mut stage = Stage::build(screen).await?;
    let mut findings = Findings::default();
    if let Err(error) = script::play(&mut stage, seed, &mut findings).await {
        findings.failure = Some(chain(&error));
    }
    stage.screen.finish();
    let took = clock::now().since(stage.started);
    let frame = Frame {
        started: stage.started,
        took,
        masters: &stage.masters,
        seed,
        lease_seconds: manifests::LEASE_SECONDS,
    };
    let timeline = timeline::svg(&stage.record(), &findings.faults, &frame);
    let report = Report::new(&stage.record(), findings, seed, took, manifests::LEASE_SECONDS);
    if !report.ok {
        stage.screen.complain(&stage.log_tails());
    }
    Ok(Run { report, timeline })
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
