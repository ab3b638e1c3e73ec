//! Which agent of a node acts: one at a time, and the newer one takes over from the older one.
//!
//! During an upgrade two agents run. The newer one claims the turn until it has it; the older one sees the claim, ends its
//! work and frees the lock of the file. Where the newer one dies, the lock stays free and the older one continues.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use redlock_core::BootInstant;

const LOCK: &str = "agent.lock";
const CLAIM: &str = "agent.claim";
/// An older agent leaves a free lock to the newer one for this long: 20 tries of the newer one.
const LEFT_FREE: Duration = Duration::from_secs(1);

/// The two files.
#[derive(Debug)]
pub(super) struct Turns {
    lock: PathBuf,
    claim: PathBuf,
    /// When this process started.
    own: BootInstant,
    /// Since when each try of this process has found the lock free, and left it to the newer agent.
    free: Option<BootInstant>,
}

/// This agent acts, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
    claim: PathBuf,
    /// When this process started.
    own: BootInstant,
    since: BootInstant,
}

/// What the file holds: the newest agent, and when it claimed the turn last.
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

    /// `None` while another agent acts, or a newer one may be about to. The newest agent repeats its claim: the agent that
    /// acts may have begun after the claim before.
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
        // The process id may be that of another container.
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

fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

/// No agent acts while this exists. It claims no turn: an agent that acts continues.
#[derive(Debug)]
pub(crate) struct Vacant {
    _lock: File,
}

impl Vacant {
    /// `None` while an agent acts.
    pub(crate) fn take(state_dir: &Path) -> io::Result<Option<Self>> {
        Ok(try_lock(&state_dir.join(LOCK))?.map(|_lock| Self { _lock }))
    }
}

impl Turn {
    /// Whether an agent that started later claims the turn.
    pub(super) fn is_claimed(&self) -> bool {
        let claim = Claim::read(&self.claim);
        claim.is_some_and(|claim| claim.started > self.own && claim.at > self.since)
    }
}

impl Claim {
    /// `None` where no claim can be read: the newest agent writes it again.
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
        // It dies.
        drop(newer);
        assert!(of_older.take(at(2_050)).unwrap().is_none());
        assert!(of_older.take(at(3_049)).unwrap().is_none());
        let older = of_older.take(at(3_050)).unwrap().unwrap();
        assert!(!older.is_claimed());
    }

    #[test]
    fn a_newer_agent_claims_the_turn_until_it_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut of_older = Turns::claim(folder.path(), at(1)).unwrap();
        let mut of_newer = Turns::claim(folder.path(), at(2)).unwrap();
        // It stands still, and the older one takes the turn after the claim.
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
