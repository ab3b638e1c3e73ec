//! Determines which agent of a node acts: one at a time, and a newer agent takes over from an older one.
//!
//! During an upgrade, two agents run. The newer agent claims the turn until it has it; the older agent sees
//! the claim, ends its work and releases the file lock. If the newer agent dies, the file lock stays free and
//! the older agent continues.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use redlock_core::BootInstant;

const LOCK: &str = "agent.lock";
const CLAIM: &str = "agent.claim";
/// The time for which an older agent leaves a free file lock to the newer agent: 20 tries of the newer agent.
const LEFT_FREE: Duration = Duration::from_secs(1);

/// The two files by which agents take turns.
#[derive(Debug)]
pub(super) struct Turns {
    lock: PathBuf,
    claim: PathBuf,
    /// The time at which this process started.
    own: BootInstant,
    /// The time since which each try of this process has found the file lock free and left it to the newer
    /// agent.
    free: Option<BootInstant>,
}

/// The turn of this agent, which acts until this value is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: FileLock,
    claim: PathBuf,
    /// The time at which this process started.
    own: BootInstant,
    since: BootInstant,
}

/// The content of the claim file: the newest agent, and the time of its last claim.
#[derive(Clone, Copy, Debug)]
struct Claim {
    started: BootInstant,
    at: BootInstant,
}

impl Turns {
    /// Asks the agent that acts to end. Called once, at the start of a process.
    pub(super) fn claim(state_dir: &Path, now: BootInstant) -> io::Result<Self> {
        let turns = Self {
            lock: state_dir.join(LOCK),
            claim: state_dir.join(CLAIM),
            own: now,
            free: None,
        };
        turns.write_claim(now)?;
        Ok(turns)
    }

    /// Takes the turn; `None` while another agent acts, or a newer agent may be about to act. The newest
    /// agent repeats its claim: the agent that acts may have begun after the previous claim.
    pub(super) fn take(&mut self, now: BootInstant) -> io::Result<Option<Turn>> {
        let newer = Claim::read(&self.claim).is_some_and(|claim| claim.started > self.own);
        let Some(turn) = self.try_lock(now)? else {
            self.free = None;
            if !newer {
                self.write_claim(now)?;
            }
            return Ok(None);
        };
        let free = *self.free.get_or_insert(now);
        if newer && now.since(free) < LEFT_FREE {
            return Ok(None);
        }
        self.free = None;
        Ok(Some(turn))
    }

    fn write_claim(&self, now: BootInstant) -> io::Result<()> {
        // A process in another container may have the same process id.
        let temporary = self.claim.with_extension(self.own.as_nanos().to_string());
        let text = format!("{} {}", self.own.as_nanos(), now.as_nanos());
        fs::write(&temporary, text)?;
        fs::rename(&temporary, &self.claim)
    }

    fn try_lock(&self, now: BootInstant) -> io::Result<Option<Turn>> {
        Ok(try_lock(&self.lock)?.map(|lock| Turn {
            _lock: lock,
            claim: self.claim.clone(),
            own: self.own,
            since: now,
        }))
    }
}

/// A file lock, which is released on drop. To close the file is not enough: a process that another thread is starting
/// has a copy of the open file until its program begins.
#[derive(Debug)]
struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // Where this fails, the lock is released when the last copy is closed.
        let _ = self.0.unlock();
    }
}

fn try_lock(path: &Path) -> io::Result<Option<FileLock>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(FileLock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

/// Shows that no agent acts while it exists. It claims no turn: where an agent acts, that agent continues.
#[derive(Debug)]
pub(crate) struct Vacant {
    _lock: FileLock,
}

impl Vacant {
    /// Returns `None` while an agent acts.
    pub(crate) fn take(state_dir: &Path) -> io::Result<Option<Self>> {
        Ok(try_lock(&state_dir.join(LOCK))?.map(|_lock| Self { _lock }))
    }
}

impl Turn {
    /// Reports whether an agent that started later claims the turn.
    pub(super) fn is_claimed(&self) -> bool {
        let claim = Claim::read(&self.claim);
        claim.is_some_and(|claim| claim.started > self.own && claim.at > self.since)
    }
}

impl Claim {
    /// Reads the claim; `None` if it cannot be read: the newest agent writes it again.
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (started, at) = text.split_once(' ')?;
        Some(Self {
            started: BootInstant::from_nanos(started.parse().ok()?),
            at: BootInstant::from_nanos(at.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_newer_agent_takes_over_and_the_older_one_continues_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut of_older = Turns::claim(folder.path(), at(1)).unwrap();
        let older = of_older.take(at(2)).unwrap().unwrap();
        assert!(!older.is_claimed(), "its own claim");
        let mut of_newer = Turns::claim(folder.path(), at(3)).unwrap();
        assert!(of_newer.take(at(4)).unwrap().is_none());
        assert!(older.is_claimed());
        drop(older);
        // The older one tries first.
        assert!(of_older.take(at(5)).unwrap().is_none());
        let newer = of_newer.take(at(6)).unwrap().unwrap();
        assert!(!newer.is_claimed());
        assert!(of_older.take(at(2_000)).unwrap().is_none());
        // The newer agent dies.
        drop(newer);
        assert!(of_older.take(at(2_050)).unwrap().is_none());
        assert!(of_older.take(at(3_049)).unwrap().is_none());
        let older = of_older.take(at(3_050)).unwrap().unwrap();
        assert!(!older.is_claimed());
    }

    #[test]
    fn turn_ends_although_a_process_that_is_being_started_has_a_copy_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut of_older = Turns::claim(folder.path(), at(1)).unwrap();
        let older = of_older.take(at(2)).unwrap().unwrap();
        let mut of_newer = Turns::claim(folder.path(), at(3)).unwrap();
        let _copy = older._lock.0.try_clone().unwrap();
        drop(older);
        assert!(of_newer.take(at(4)).unwrap().is_some());
    }

    #[test]
    fn a_newer_agent_claims_the_turn_until_it_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut of_older = Turns::claim(folder.path(), at(1)).unwrap();
        let mut of_newer = Turns::claim(folder.path(), at(2)).unwrap();
        // The newer agent stands still, and the older one takes the turn after the claim.
        assert!(of_older.take(at(10)).unwrap().is_none());
        let older = of_older.take(at(1_010)).unwrap().unwrap();
        assert!(!older.is_claimed(), "the newer one may have died");
        assert!(of_newer.take(at(1_500)).unwrap().is_none());
        assert!(older.is_claimed());
        // The newest one of three gets the turn.
        let mut of_newest = Turns::claim(folder.path(), at(1_510)).unwrap();
        assert!(of_newer.take(at(1_520)).unwrap().is_none());
        drop(older);
        assert!(of_newer.take(at(1_530)).unwrap().is_none());
        let newest = of_newest.take(at(1_540)).unwrap().unwrap();
        assert!(of_newer.take(at(1_550)).unwrap().is_none());
        assert!(of_older.take(at(1_560)).unwrap().is_none());
        assert!(!newest.is_claimed());
    }
}
