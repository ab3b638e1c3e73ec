//! Records the state that a master shows.

use redlock_testkit::observer::Shown;

use super::{Shared, lock};

pub(super) fn record(master: usize, locks: &[String], shown: Option<Shown>, record: &Shared) {
    let mut record = lock(record);
    let view = record.masters.get_mut(master);
    // A master that is down, hung or restarting is an observation, not an error.
    let Some(shown) = shown else {
        if let Some(view) = view {
            view.answers = false;
        }
        return;
    };
    let sealed = shown.sealed();
    if let Some(view) = view {
        view.answers = true;
        view.sealed = sealed;
        view.probed = shown.probed;
        view.run_id.clone_from(&shown.run_id);
        view.reads += 1;
        view.stray_leases += u64::from(shown.any_lease() && !sealed);
    }
    for (lock, (lease, ends)) in locks.iter().zip(shown.leases()) {
        if let Some(account) = record.accounts.get_mut(lock) {
            account.saw(master, lease, ends, shown.at);
            if !sealed {
                account.has_no_vote(master);
            }
        }
    }
}
