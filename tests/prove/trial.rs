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

pub fn play(row: Row, seed: u64, guardian: Guardian, network: &Handle) -> Outcome {
    let booted = Booted::now();
    let stage = Stage::start(row.work(), guardian, network);
    let probe = Probe::start();
    let guardian_waited = faults::play(row, &stage, &mut Rng::with_seed(seed));
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
