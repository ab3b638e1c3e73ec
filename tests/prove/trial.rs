//! One trial: a stage, a fault, and the judgement of the records.

use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Handle;

use crate::delays::{Delays, Probe};
use crate::faults;
use crate::outcome::Outcome;
use crate::records::{self, Booted, Record};
use crate::rows::Row;
use crate::stage::{Guardian, LEASE, Stage};

/// The largest step of the wall clock with which the times of files can be used.
const STEP: Duration = Duration::from_millis(10);
/// The most stages of a trial.
const STAGES: usize = 3;

/// Starts the holders, and waits until the time of the fault. If a stall of the machine ends the old holder's lease
/// before, the fault has no effect: then this starts another stage.
fn staged(row: Row, rng: &mut Rng, guardian: Guardian, network: &Handle) -> (Stage, Probe) {
    let mut left = STAGES;
    loop {
        let mut stage = Stage::start(row.work(), guardian, network);
        let probe = Probe::start();
        faults::pause_before(row, rng);
        left -= 1;
        if left == 0 || !stage.lost() {
            return (stage, probe);
        }
        println!("{}: the old holder lost its lease before the fault", row.key());
    }
}

pub fn play(row: Row, seed: u64, guardian: Guardian, network: &Handle) -> Outcome {
    let booted = Booted::now();
    let mut rng = Rng::with_seed(seed);
    let (stage, probe) = staged(row, &mut rng, guardian, network);
    let guardian_waited = faults::play(row, &stage, &mut rng);
    let moved = booted.moved();
    assert!(
        moved < STEP,
        "the clock was set by {moved:?} during the trial: repeat the trial"
    );
    let (old, new) = (read(&stage, "old", booted), read(&stage, "new", booted));
    let (first, old_token, new_token) = (new.writes[0].at, old.writes[0].token, new.writes[0].token);
    let writers = records::pids(stage.folder(), "old").len();
    assert!(
        writers >= row.work().writers(),
        "{writers} processes of the old holder wrote"
    );
    let ledger = stage.resource().tokens();
    let after_new = ledger.iter().skip_while(|token| **token != new_token);
    Outcome {
        valid_until: (!row.releases()).then(|| faults::valid_until(&stage)),
        last: old.last,
        first,
        old_token,
        new_token,
        late: old.writes.iter().filter(|write| write.at >= first).count(),
        let_in: after_new.filter(|token| **token == old_token).count(),
        delays: Delays::before(&old, LEASE, &probe, guardian_waited),
    }
}

fn read(stage: &Stage, name: &str, booted: Booted) -> Record {
    let record = records::read(stage.folder(), name, booted);
    assert!(!record.writes.is_empty(), "{name} wrote nothing");
    record
}
