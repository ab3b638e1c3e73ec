//! Simulates users and faults.

use std::time::Duration;

use super::{NAMES, Outside, QUORUMS};
use crate::{
    api::{abstention::ABSTAIN, hand_over::REQUEST},
    controller::index::Input,
};

/// Faults that last until they are ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Whether the rate limit allows no status.
    pub(super) limited: bool,
    /// Whether no quorum can be opened, and no URL of a master replaced.
    pub(super) refuses: bool,
    /// Whether servers do not lose their votes.
    pub(super) keeps_votes: bool,
    /// Whether no kind of a target is served.
    pub(super) unswitchable: bool,
    /// Whether running targets do not become ready.
    pub(super) unready: bool,
}

/// The subject of most user actions and faults of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller::index::simulation) enum Focus {
    All,
    /// One lock is handed over, again and again.
    Drains,
    /// Quorums that are refused, and URLs of masters.
    Masters,
    /// Locks are deleted while siblings see the masters, and this replica does not.
    Siblings,
    /// Another cluster has the name of this one, and a lock is only observed.
    Names,
    /// A lock changes its quorum and its fencing while stops fail.
    Identities,
}

impl Focus {
    pub(super) fn any(random: &mut fastrand::Rng) -> Self {
        match random.u8(..16) {
            0..=3 => Self::Drains,
            4 => Self::Masters,
            5 => Self::Siblings,
            6 => Self::Names,
            7 => Self::Identities,
            _ => Self::All,
        }
    }
}

impl Outside {
    pub(super) fn user(&mut self) {
        match (self.focus, self.random.u8(..8)) {
            // A request would take the place of a failover.
            (Focus::Drains, 0..=3) if self.faults.unready => return,
            (Focus::Drains, 0..=3) => return self.ask_for_hand_over(NAMES[0]),
            (Focus::Drains, 4) => return self.server.annotate(NAMES[0], REQUEST, None),
            (Focus::Drains, 5) => return self.server.touch(NAMES[0]),
            (Focus::Drains, 6) => {
                let when = (self.stamp(), self.now);
                return self.server.recreate(NAMES[0], &mut self.random, when);
            }
            (Focus::Siblings, 0..=4) => {
                let (name, stamp) = (NAMES[self.random.usize(..NAMES.len())], self.stamp());
                return self.server.delete(name, stamp);
            }
            (Focus::Identities, 0..=4) => {
                let stamp = self.stamp();
                return self.server.change_identity(NAMES[0], &mut self.random, stamp);
            }
            (Focus::Masters, 0..=4) => return self.server.move_master(QUORUMS[0], &mut self.random),
            _ => {}
        }
        let stamp = self.stamp();
        let name = NAMES[self.random.usize(..NAMES.len())];
        let quorum = QUORUMS[self.random.usize(..QUORUMS.len())];
        match self.random.u8(..16) {
            0..=3 => self.server.apply(name, &mut self.random, stamp),
            4..=6 => self.server.delete(name, stamp),
            7 => self.server.apply_quorum(quorum, &mut self.random, stamp),
            8 => self.server.delete_quorum(quorum, stamp),
            9 | 10 => self.server.recreate(name, &mut self.random, (stamp, self.now)),
            11 => self.server.move_master(quorum, &mut self.random),
            12 => self.server.touch(name),
            13 => {
                let paused = self.random.bool().then(|| "a test".to_owned());
                self.server.annotate(name, "redlock.dev/paused", paused);
            }
            14 => {
                let seconds = self.random.u64(..120);
                let until = super::timestamp_at(self.unix + Duration::from_secs(seconds));
                let text = format!(r#"{{"until": "{until}", "seconds": 60}}"#);
                let text = self.random.bool().then_some(text);
                self.server.annotate(name, ABSTAIN, text);
            }
            _ => self.ask_for_hand_over(name),
        }
    }

    fn ask_for_hand_over(&mut self, name: &str) {
        // Usually the token of an existing lease.
        let held = self.quorums.values().flat_map(|quorum| quorum.locks.values());
        let held: Vec<u64> = held.filter_map(|stand| Some(stand.owner?.1)).collect();
        let token = self.random.choice(held).unwrap_or(1);
        let until = self.unix.as_secs() + 60;
        let request = format!(r#"{{"id": "1", "token": {token}, "to": "us-1/other", "notAfter": {until}}}"#);
        self.server.annotate(name, REQUEST, Some(request));
    }

    pub(super) fn fault(&mut self) {
        if self.focus == Focus::Masters && self.random.bool() {
            self.faults.refuses ^= true;
            return;
        }
        if self.focus == Focus::Siblings && self.random.bool() {
            return self.lose_or_find_masters();
        }
        if self.focus == Focus::Identities && self.random.bool() {
            self.server.down ^= true;
            return;
        }
        match self.random.u8(..16) {
            15 => self.faults.unswitchable ^= true,
            0 => {
                self.server.down ^= true;
                self.cut_off = self.server.down && self.random.bool();
                self.sibling_reaches_api = self.random.bool();
            }
            1 if self.server.unwatched && !self.server.unserved => self.server.watch_again(self.now),
            1 => self.server.break_watch(),
            2 if self.server.unserved => {
                self.server.unserved = false;
                self.server.watch_again(self.now);
            }
            2 => {
                self.server.unserved = true;
                // An open watch stays open for a while.
                if self.random.bool() {
                    self.server.break_watch();
                }
            }
            3 => self.sibling_sees ^= true,
            4 => self.sibling_answers ^= true,
            5 => self.step_wall_clock(),
            6 => self.faults.limited ^= true,
            7 => self.faults.refuses ^= true,
            8 => self.faults.keeps_votes ^= true,
            9 => self.faults.unready ^= true,
            10 if self.random.bool() => self.other_takes_part ^= true,
            10 => self.other_lives ^= true,
            11 | 12 => self.server.coordinate(self.sibling_sees, self.stamp()),
            _ => self.lose_or_find_masters(),
        }
    }

    fn lose_or_find_masters(&mut self) {
        for quorum in self.quorums.values_mut() {
            quorum.voting = if quorum.voting < 2 {
                3
            } else {
                self.random.usize(..2)
            };
        }
    }

    fn step_wall_clock(&mut self) {
        let most = if self.random.bool() { 100 } else { 100_000 };
        let step = Duration::from_secs(self.random.u64(..most));
        self.unix = if self.random.bool() {
            self.unix + step
        } else {
            self.unix - step
        };
    }

    /// Ends all faults, except that this replica may stay blind.
    pub(in crate::controller::index::simulation) fn heal(&mut self, blind: bool) -> Vec<Input> {
        self.calm = true;
        self.faults = Faults::default();
        self.server.unwatched |= self.server.unserved;
        (self.server.down, self.server.unserved) = (false, false);
        (self.cut_off, self.sibling_reaches_api) = (false, true);
        // A sibling that sees the masters would be responsible for the remaining work.
        (self.sibling_sees, self.sibling_answers) = (false, true);
        self.blind = blind;
        for name in NAMES {
            self.server.annotate(name, "redlock.dev/paused", None);
            self.server.annotate(name, REQUEST, None);
            self.server.annotate(name, ABSTAIN, None);
        }
        for quorum in self.quorums.values_mut() {
            quorum.voting = if blind { 1 } else { 3 };
            for (_, stand) in quorum.locks.iter_mut().filter(|(lock, _)| lock.is_internal()) {
                // This cluster owns its name again.
                stand.owner = None;
            }
        }
        self.server.watch_again(self.now);
        self.elect()
    }

    /// Lets another object take the name while a request about the finalizer of its predecessor is under way.
    pub(super) fn may_recreate(&mut self, name: &str) {
        if !self.calm && self.random.u8(..8) == 0 {
            let stamp = self.stamp();
            self.server.recreate(name, &mut self.random, (stamp, self.now));
        }
    }
}
