//! Repeats undos and reserves: the connection of the grant was lost, or the master did not answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{BootInstant, Command, LeaseAttempt, LockKeys, command::Item, script::BatchItem};

/// The longest wait between two repeats.
const SLOWEST: Duration = Duration::from_secs(5);

/// The call that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatedCall {
    /// A release or an undo.
    Undo {
        publish: bool,
    },
    Reserve,
}

impl RepeatedCall {
    /// Returns how this item is repeated, if it ends a lease: a reserve is never repeated as an undo (P-57).
    pub(super) const fn of(item: &Item) -> Option<Self> {
        match item {
            Item::UndoAgain { publish, .. } | Item::Command(Command::Undo { publish, .. }) => {
                Some(Self::Undo { publish: *publish })
            }
            Item::Command(Command::Release { .. }) => Some(Self::Undo { publish: true }),
            Item::ReserveAgain { .. } | Item::Command(Command::Reserve { .. }) => Some(Self::Reserve),
            Item::Confirm { .. }
            | Item::Command(
                Command::Acquire { .. }
                | Command::Renew { .. }
                | Command::Observe
                | Command::Inspect
                | Command::Break { .. }
                | Command::Mark { .. }
                | Command::Claim { .. }
                | Command::Slots { .. },
            ) => None,
        }
    }
}

#[derive(Debug)]
struct Repeat {
    lock: Arc<LockKeys>,
    attempt: Arc<LeaseAttempt>,
    master: usize,
    call: RepeatedCall,
    wait: Duration,
    until: BootInstant,
}

/// The pending repeats, by the time of the next try. A lease that cannot be undone expires, as does its
/// entry.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    due: BTreeMap<(BootInstant, u64), Repeat>,
    next_id: u64,
    trying: BTreeMap<(usize, usize), (Duration, BootInstant)>,
}

impl Repeats {
    /// Plans a repeat after the last `not_after` of any grant or renewal of that lease (P-54): none is sent after
    /// `now`, and each was given at most `command_timeout`, the longest timeout so far.
    pub(super) fn plan(
        &mut self,
        lock: &Arc<LockKeys>,
        attempt: &Arc<LeaseAttempt>,
        (master, call): (usize, RepeatedCall),
        now: BootInstant,
        command_timeout: Duration,
    ) {
        let key = (Arc::as_ptr(attempt) as usize, master);
        let (wait, until) = self.trying.remove(&key).unwrap_or((
            command_timeout * 102 / 100 + Duration::from_millis(5),
            now + attempt.lifetime + command_timeout,
        ));
        if now + wait > until {
            return;
        }
        let repeat = Repeat {
            lock: lock.clone(),
            attempt: attempt.clone(),
            master,
            call,
            wait,
            until,
        };
        self.next_id += 1;
        self.due.insert((now + wait, self.next_id), repeat);
    }

    pub(super) fn next(&self) -> Option<BootInstant> {
        self.due.first_key_value().map(|((moment, _), _)| *moment)
    }

    pub(super) fn count(&self) -> usize {
        self.due.len()
    }

    /// Returns the repeats that are due. A failed reserve is not repeated: a release with repeats of its own
    /// follows, or the lease runs out.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Vec<BatchItem> {
        let mut items = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let Repeat {
                lock,
                attempt,
                master,
                call,
                wait,
                until,
            } = entry.remove();
            let key = (Arc::as_ptr(&attempt) as usize, master);
            let item = match (call, attempt.reserved().cloned()) {
                (RepeatedCall::Undo { publish }, _) => Item::UndoAgain {
                    attempt,
                    publish,
                    only: master,
                },
                (RepeatedCall::Reserve, Some(cluster)) => Item::ReserveAgain {
                    attempt,
                    cluster,
                    only: master,
                },
                (RepeatedCall::Reserve, None) => continue,
            };
            self.trying.insert(key, ((wait * 2).min(SLOWEST), until));
            items.push((lock, item));
        }
        items
    }

    /// Removes the repeat of this lease at this master, which has answered.
    pub(super) fn done(&mut self, attempt: &Arc<LeaseAttempt>, master: usize) {
        self.trying.remove(&(Arc::as_ptr(attempt) as usize, master));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, HolderIdentity, Keyspace, LeaseStem, LockName, Nonce};

    const TIMEOUT: Duration = Duration::from_millis(100);
    /// 1.02 × the timeout and 5 ms.
    const FIRST: Duration = Duration::from_millis(107);

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    fn attempt() -> Arc<LeaseAttempt> {
        let cluster = ClusterId::new("a", "b").unwrap();
        let stem = LeaseStem::new(&cluster, &HolderIdentity::parse("c").unwrap(), Nonce(1));
        Arc::new(LeaseAttempt::new(stem, Duration::from_secs(10)))
    }

    fn plan(repeats: &mut Repeats, attempt: &Arc<LeaseAttempt>, ms: u64) -> Option<BootInstant> {
        let lock = Keyspace::new("p").lock(&LockName::any("l").unwrap());
        let call = RepeatedCall::Undo { publish: false };
        repeats.plan(&lock, attempt, (1, call), at(ms), TIMEOUT);
        repeats.next()
    }

    #[test]
    fn repeat_without_an_answer_waits_twice_as_long_until_the_lease_has_ended() {
        let (mut repeats, attempt) = (Repeats::default(), attempt());
        let mut waits = Vec::new();
        let mut now = at(0);
        while let Some(next) = plan(&mut repeats, &attempt, now.as_nanos() / 1_000_000) {
            waits.push(next.since(now).as_millis());
            assert!(repeats.take_due(next - Duration::from_millis(1)).is_empty());
            assert_eq!(repeats.take_due(next).len(), 1);
            assert_eq!(repeats.count(), 0);
            now = next;
        }
        // The next repeat, at 11.6 s, would be after the end of the lease and the timeout of the last grant.
        assert_eq!(waits, [107, 214, 428, 856, 1_712, 3_424]);
    }

    #[test]
    fn wait_between_two_repeats_is_never_longer_than_five_seconds() {
        let mut repeats = Repeats::default();
        let attempt = Arc::new(LeaseAttempt::new(attempt().stem.clone(), Duration::from_secs(60)));
        let (mut now, mut longest) = (at(0), Duration::ZERO);
        while let Some(next) = plan(&mut repeats, &attempt, now.as_nanos() / 1_000_000) {
            longest = longest.max(next.since(now));
            assert_eq!(repeats.take_due(next).len(), 1);
            now = next;
        }
        assert_eq!(longest, SLOWEST);
        assert!(now > at(50_000), "until the lease has ended: {now:?}");
    }

    #[test]
    fn repeat_that_was_answered_is_forgotten() {
        let (mut repeats, attempt) = (Repeats::default(), attempt());
        let first = plan(&mut repeats, &attempt, 0).unwrap();
        assert_eq!(repeats.take_due(first).len(), 1);
        repeats.done(&attempt, 1);
        assert_eq!(plan(&mut repeats, &attempt, 1_000), Some(at(1_000) + FIRST));
    }
}
