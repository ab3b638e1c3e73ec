//! Runs the script of the demo: the failures, their order and the expected results.

mod masters;
mod replicas;
mod takeover;

use std::time::Duration;

use super::claims::Incarnation;
use super::error::DemoError;
use super::manifests::LEASE_SECONDS;
use super::report::{Check, Findings};
use super::stage::Stage;
use super::timeline::{Fault, FaultKind};
use redlock_client::clock;
use redlock_core::BootInstant;

/// The bound for an immediate effect; generous for a busy machine.
const SOON: Duration = Duration::from_secs(15);
/// The bound for an effect after the end of a lease.
const AFTER_LEASE: Duration = Duration::from_secs(LEASE_SECONDS + 10);
/// The number of repetitions. One failure proves little; more than three would not fit into a minute on a
/// busy machine.
const TIMES: u32 = 3;

struct Play<'a> {
    stage: &'a mut Stage,
    findings: &'a mut Findings,
}

/// Plays the script to its end, or to the first expected event that does not happen.
pub(super) async fn play(stage: &mut Stage, seed: u64, findings: &mut Findings) -> Result<(), DemoError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let masters = stage.masters.len();
    let hung = random.usize(..masters);
    // Another master, so that each failure is observed separately.
    let emptied = (hung + 1 + random.usize(..masters - 1)) % masters;
    let mut play = Play { stage, findings };
    play.begin(seed).await?;
    play.crashes().await?;
    play.clean_stops().await?;
    play.hang(hung).await?;
    let emptied = play.empty(emptied).await?;
    play.freeze().await?;
    play.sealed_again(emptied).await?;
    play.close().await
}

impl Play<'_> {
    async fn begin(&mut self, seed: u64) -> Result<(), DemoError> {
        let locks = self.stage.record().locks.len();
        self.heading(&format!(
            "Five masters and three replicas, with the {locks} locks of examples/standalone"
        ));
        self.print(&format!(
            "In the demo's copy every lease, and the longest of the quorum, is {LEASE_SECONDS} s, so that all fits into a minute."
        ));
        self.print(&format!("The masters to fail are drawn with --seed {seed}."));
        for who in self.stage.running() {
            self.ready(&who).await?;
        }
        self.stage
            .wait(SOON, "every lock has a holder", |record, now| {
                record.all_held(now).then_some(())
            })
            .await?;
        self.check(true, "every lock found a holder", format!("{locks} of {locks}"));
        Ok(())
    }

    /// Waits until a replica can take part and knows the holder of every lock. A replica that has just started may
    /// still wait after a first attempt without a quorum, and a hand-over would measure that wait.
    async fn ready(&mut self, who: &Incarnation) -> Result<(), DemoError> {
        let what = format!("{} is ready and knows the holder of each lock", who.name);
        self.stage
            .wait(SOON, &what, |record, _| {
                let view = record.replica(who).filter(|view| view.ready && view.answers)?;
                let knows = |lock: &String| view.lines.iter().any(|line| line.event.lock() == Some(lock));
                record.locks.iter().all(knows).then_some(())
            })
            .await
    }

    async fn close(&mut self) -> Result<(), DemoError> {
        self.heading("The end: SIGTERM to all replicas");
        for who in self.stage.running() {
            self.fault(FaultKind::Stop, &who.name, clock::now(), None);
            let (took, clean) = self.stage.stop(&who, SOON).await?;
            let took = took.as_millis();
            self.check(
                clean,
                &format!("{} left with exit code 0", who.name),
                format!("{took} ms"),
            );
        }
        self.stage
            .wait(SOON, "no lease is left on any master", |record, now| {
                let masters = 0..record.masters.len();
                let left = record
                    .accounts
                    .values()
                    .any(|account| masters.clone().any(|master| account.shown_by(master, now)));
                (!left).then_some(())
            })
            .await?;
        self.check(
            true,
            "no lease is left on any master",
            "all were released".to_owned(),
        );
        Ok(())
    }

    fn heading(&mut self, text: &str) {
        self.stage.screen.heading(text);
    }

    fn print(&mut self, text: &str) {
        self.stage.screen.print(text);
    }

    /// Records a fault for the timeline.
    fn fault(&mut self, kind: FaultKind, of: &str, at: BootInstant, until: Option<BootInstant>) {
        self.findings.faults.push(Fault {
            kind,
            of: of.to_owned(),
            at,
            until,
        });
    }

    /// Records whether an expectation was met, and prints it.
    fn check(&mut self, ok: bool, what: &str, detail: String) {
        self.print(&format!("{} {what}: {detail}", if ok { '✓' } else { '✗' }));
        self.findings.checks.push(Check {
            what: what.to_owned(),
            ok,
            detail,
        });
    }
}
