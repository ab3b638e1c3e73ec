//! Which agent of a node acts: one at a time, and the newer one takes over from the older one.
//!
//! During an upgrade two agents run. The newer one claims the turn when it starts; the older one sees the claim, ends its
//! work and frees the lock of the file. Where the newer one dies, the lock is free again and the older one continues.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use redlock_core::BootInstant;

const LOCK: &str = "agent.lock";
const CLAIM: &str = "agent.claim";

/// The two files.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    lock: PathBuf,
    claim: PathBuf,
}

/// This agent acts, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
    turns: Turns,
    since: BootInstant,
}

impl Turns {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            lock: state_dir.join(LOCK),
            claim: state_dir.join(CLAIM),
        }
    }

    /// Asks the agent that acts to end. Called once, at the start of a process.
    pub(super) fn claim(&self, now: BootInstant) -> io::Result<()> {
        let temporary = self.claim.with_extension(std::process::id().to_string());
        fs::write(&temporary, now.as_nanos().to_string())?;
        fs::rename(&temporary, &self.claim)
    }

    /// `None` while another agent acts.
    pub(super) fn take(&self, now: BootInstant) -> io::Result<Option<Turn>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Turn {
                _lock: file,
                turns: self.clone(),
                since: now,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(cause),
        }
    }
}

impl Turn {
    /// Whether an agent that started later claims the turn.
    pub(super) fn is_claimed(&self) -> bool {
        let claim = fs::read_to_string(&self.turns.claim).ok();
        let claim = claim
            .and_then(|text| text.parse().ok())
            .map(BootInstant::from_nanos);
        claim.is_some_and(|claim| claim > self.since)
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
        let turns = Turns::new(folder.path());
        turns.claim(at(1)).unwrap();
        let older = turns.take(at(2)).unwrap().unwrap();
        assert!(!older.is_claimed(), "its own claim");
        turns.claim(at(3)).unwrap();
        assert!(turns.take(at(4)).unwrap().is_none());
        assert!(older.is_claimed());
        drop(older);
        let newer = turns.take(at(5)).unwrap().unwrap();
        assert!(!newer.is_claimed());
        // It dies.
        drop(newer);
        let older = turns.take(at(6)).unwrap().unwrap();
        assert!(!older.is_claimed());
    }
}
