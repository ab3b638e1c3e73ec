//! Which masters are up and sealed, on connections of its own, with plain commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, InfoDict, RedisResult};
use redlock::clock;
use redlock::lease::Moment;

use redlock_testkit::kept;

const EVERY: Duration = Duration::from_millis(50);
/// A master on the loopback answers in a fraction of a millisecond, one that is frozen not at all.
const PATIENCE: Duration = Duration::from_millis(200);

/// Each change: when, which master, whether it is up and sealed from then on.
type Changes = Arc<Mutex<Vec<(Moment, usize, bool)>>>;

#[derive(Debug)]
pub struct Watch {
    changes: Changes,
    masters: usize,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    pub fn start(urls: &[String]) -> Self {
        let (changes, stop) = (Changes::default(), Arc::<AtomicBool>::default());
        let threads = urls.iter().enumerate().map(|(master, url)| {
            let client = redis::Client::open(url.as_str()).unwrap();
            let (changes, stop) = (Arc::clone(&changes), Arc::clone(&stop));
            thread::spawn(move || {
                let (mut connection, mut before) = (None, false);
                while !stop.load(Ordering::Relaxed) {
                    let up = ask(&client, &mut connection).unwrap_or_else(|_| {
                        connection = None;
                        false
                    });
                    if up != std::mem::replace(&mut before, up) {
                        changes.lock().unwrap().push((clock::now(), master, up));
                    }
                    thread::sleep(EVERY);
                }
            })
        });
        Self {
            threads: threads.collect(),
            masters: urls.len(),
            changes,
            stop,
        }
    }

    /// How many are up and sealed now.
    pub fn up(&self) -> usize {
        let changes = self.changes.lock().unwrap();
        let last = |master| changes.iter().rev().find(|(_, of, _)| *of == master);
        (0..self.masters)
            .filter(|master| last(*master).is_some_and(|(_, _, up)| *up))
            .count()
    }

    /// When so many of them were, from `begin` to `end`.
    pub fn intervals(&self, enough: usize, begin: Moment, end: Moment) -> Vec<(Moment, Moment)> {
        let mut changes = self.changes.lock().unwrap().clone();
        changes.sort_by_key(|(at, ..)| *at);
        let (mut up, mut since, mut found) = (vec![false; self.masters], None, Vec::new());
        let mut add = |from: Moment, to: Moment| {
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

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn ask(client: &redis::Client, connection: &mut Option<Connection>) -> RedisResult<bool> {
    let connection = kept(client, connection, PATIENCE)?;
    let (info, seal): (InfoDict, Option<String>) = redis::pipe()
        .cmd("INFO")
        .arg("server")
        .cmd("HGET")
        .arg("redlock:meta")
        .arg("seal")
        .query(connection)?;
    let run_id: Option<String> = info.get("run_id");
    Ok(seal.is_some() && seal == run_id)
}
