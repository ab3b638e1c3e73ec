//! The masters' own account of the leases, by plain GET and PTTL on connections of its own. Knows the text of a lease from
//! its documentation, and shares no code with what it observes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, RedisResult};
use redlock::clock;
use redlock::lease::Moment;

use redlock_testkit::kept;

const EVERY: Duration = Duration::from_millis(10);
/// A master on the loopback answers in a fraction of a millisecond, one that is gone not at all.
const PATIENCE: Duration = Duration::from_millis(150);
/// Two looks at an unchanged expiry differ by the round trip and the rounding of PTTL; a renewal moves it by far more.
const RENEWED: Duration = Duration::from_millis(50);
/// What a holder keeps back of its lease for clocks of different rate (README): 1 % and 2 ms.
const DRIFT: fn(Duration) -> Duration = |lease| lease / 100 + Duration::from_millis(2);

/// The end of a lease on each master that showed it.
type Ends = HashMap<usize, Moment>;

/// By holder identity: each has one lease in a trial.
#[derive(Debug, Default)]
struct Seen(HashMap<String, Ends>);

#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    lease: Duration,
    stop: Arc<AtomicBool>,
    looks: Option<JoinHandle<()>>,
}

impl Observer {
    pub fn start(urls: &[String], lock: &str, lease: Duration) -> Self {
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let clients: Vec<redis::Client> = urls
            .iter()
            .map(|url| redis::Client::open(url.as_str()).unwrap())
            .collect();
        let key = format!("redlock:lease:{lock}");
        let looks = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            thread::spawn(move || {
                let mut connections: Vec<Option<Connection>> = clients.iter().map(|_| None).collect();
                while !stop.load(Ordering::Relaxed) {
                    for (master, client) in clients.iter().enumerate() {
                        look(master, client, &mut connections[master], &key, &seen);
                    }
                    thread::sleep(EVERY);
                }
            })
        };
        Self {
            seen,
            lease,
            stop,
            looks: Some(looks),
        }
    }

    /// The latest that a holder can have believed to hold the lease: the soonest end that a master shows, less the drift.
    /// What it believed is earlier by the time that its renewal took to get there.
    pub fn valid_until(&self, identity: &str) -> Option<Moment> {
        let seen = self.seen.lock().unwrap();
        let end = seen.0.get(identity)?.values().min()?;
        Some(*end - DRIFT(self.lease))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(looks) = self.looks.take() {
            let _ = looks.join();
        }
    }
}

/// A master that does not answer is not asked for more than a moment, and dialled again at the next look.
fn look(
    master: usize,
    client: &redis::Client,
    connection: &mut Option<Connection>,
    key: &str,
    seen: &Mutex<Seen>,
) {
    match ask(client, connection, key) {
        Ok((Some(value), left)) if left > 0 => {
            let ends = clock::now() + Duration::from_millis(u64::try_from(left).unwrap());
            let identity = value
                .split('|')
                .nth(3)
                .unwrap_or_else(|| panic!("a lease value: {value}"));
            let mut seen = seen.lock().unwrap();
            let leases = seen.0.entry(identity.to_owned()).or_default();
            let end = leases.entry(master).or_insert(ends);
            // Every look gives an upper bound, and the least of them is the nearest, until a renewal moves it all.
            *end = if ends > *end + RENEWED {
                ends
            } else {
                (*end).min(ends)
            };
        }
        Ok(_) => {}
        Err(_) => *connection = None,
    }
}

fn ask(
    client: &redis::Client,
    connection: &mut Option<Connection>,
    key: &str,
) -> RedisResult<(Option<String>, i64)> {
    let connection = kept(client, connection, PATIENCE)?;
    redis::pipe()
        .cmd("GET")
        .arg(key)
        .cmd("PTTL")
        .arg(key)
        .query(connection)
}
