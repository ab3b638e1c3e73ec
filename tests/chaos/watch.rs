//! Records which masters are up and sealed, as an observer from outside sees them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;
use redlock_testkit::observer::{Poller, Shown};

const EVERY: Duration = Duration::from_millis(50);

/// Each change: the time, the master, and whether the master is up and sealed from that time.
type Changes = Arc<Mutex<Vec<(BootInstant, usize, bool)>>>;

#[derive(Debug)]
pub struct Watch {
    changes: Changes,
    masters: usize,
    _poller: Poller,
}

impl Watch {
    pub fn start(urls: &[String]) -> Self {
        let changes = Changes::default();
        let seen = Arc::clone(&changes);
        let report = move |master, shown: Option<Shown>| enter(&mut seen.lock().unwrap(), master, shown);
        Self {
            changes,
            masters: urls.len(),
            _poller: Poller::start(urls, &[], EVERY, report).unwrap(),
        }
    }

    /// Returns how many masters are up and sealed now.
    pub fn up(&self) -> usize {
        let changes = self.changes.lock().unwrap();
        let last = |master| changes.iter().rev().find(|(_, of, _)| *of == master);
        (0..self.masters)
            .filter(|master| last(*master).is_some_and(|(_, _, up)| *up))
            .count()
    }

    /// Returns the intervals in which at least `enough` masters were up, from `begin` to `end`.
    pub fn intervals(
        &self,
        enough: usize,
        begin: BootInstant,
        end: BootInstant,
    ) -> Vec<(BootInstant, BootInstant)> {
        let mut changes = self.changes.lock().unwrap().clone();
        changes.sort_by_key(|(at, ..)| *at);
        let (mut up, mut since, mut found) = (vec![false; self.masters], None, Vec::new());
        let mut add = |from: BootInstant, to: BootInstant| {
            let (from, to) = (from.max(begin), to.min(end));
            if from < to {
                found.push((from, to));
            }
        };
        for (at, master, is) in changes {
            up[master] = is;
            let now = up.iter().filter(|up| **up).count() >= enough;
            match (since, now) {
                (None, true) => since = Some(at),
                (Some(from), false) => {
                    add(from, at);
                    since = None;
                }
                _ => {}
            }
        }
        if let Some(from) = since {
            add(from, end);
        }
        found
    }
}

fn enter(changes: &mut Vec<(BootInstant, usize, bool)>, master: usize, shown: Option<Shown>) {
    let up = shown.as_ref().is_some_and(Shown::sealed);
    let last = changes.iter().rev().find(|(_, of, _)| *of == master);
    if up != last.is_some_and(|(_, _, up)| *up) {
        let at = shown.map_or_else(clock::now, |shown| shown.at);
        changes.push((at, master, up));
    }
}
