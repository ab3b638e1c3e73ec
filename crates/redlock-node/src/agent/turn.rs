//! Which agent of a node acts: one at a time, and the newer one takes over from the older one.
//!
//! During an upgrade two agents run. The newer one claims the turn when it starts; the older one sees the claim, ends its
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
/// An older agent leaves a free lock to the newer one for so long: 20 tries of the newer one.
const LEFT_FREE: Duration = Duration::from_secs(1);

/// The two files.
#[derive(Debug)]
pub(super) struct Turns {
    lock: PathBuf,
    claim: PathBuf,
    /// The claim of this process.
    own: BootInstant,
    /// Since when each try of this process has found the lock free, and left it to the newer agent.
    free: Option<BootInstant>,
}

/// This agent acts, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
    claim: PathBuf,
    since: BootInstant,
}

impl Turns {
    /// Asks the agent that acts to end. Called once, at the start of a process.
    pub(super) fn claim(state_dir: &Path, now: BootInstant) -> io::Result<Self> {
        let claim = state_dir.join(CLAIM);
        let temporary = claim.with_extension(std::process::id().to_string());
        fs::write(&temporary, now.as_nanos().to_string())?;
        fs::rename(&temporary, &claim)?;
        Ok(Self {
            lock: state_dir.join(LOCK),
            claim,
            own: now,
            free: None,
        })
    }

    /// `None` while another agent acts, or a newer one may be about to.
    pub(super) fn take(&mut self, now: BootInstant) -> io::Result<Option<Turn>> {
        let Some(turn) = self.try_lock(now)? else {
            self.free = None;
            return Ok(None);
        };
        let free = *self.free.get_or_insert(now);
        if claimed_after(&self.claim, self.own) && now.since(free) < LEFT_FREE {
            return Ok(None);
        }
        self.free = None;
        Ok(Some(turn))
    }

    fn try_lock(&self, now: BootInstant) -> io::Result<Option<Turn>> {
        Ok(try_lock(&self.lock)?.map(|lock| Turn {
            _lock: lock,
            claim: self.claim.clone(),
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
        claimed_after(&self.claim, self.since)
    }
}

fn claimed_after(claim: &Path, moment: BootInstant) -> bool {
    let claim = fs::read_to_string(claim).ok();
    let claim = claim
        .and_then(|text| text.parse().ok())
        .map(BootInstant::from_nanos);
    claim.is_some_and(|claim| claim > moment)
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
}
