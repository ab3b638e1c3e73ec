//! Observes masters from outside, by plain commands on connections of its own.
//!
//! The keys and the text of a lease follow their documentation, independently of the observed code: redlock-client
//! provides only the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Client, Connection, InfoDict, Pipeline, RedisResult, Value, from_redis_value};
use redlock_client::clock;
use redlock_core::BootInstant;

/// The default prefix of the keys on the masters.
const PREFIX: &str = "redlock";
/// A master on the loopback answers in a fraction of a millisecond; a stopped master does not answer.
const PATIENCE: Duration = Duration::from_millis(150);
const REDIAL: Duration = Duration::from_millis(20);
/// Two reads of an unchanged expiry differ by the round trip and the rounding of PTTL. A renewal moves the expiry by
/// far more.
const RENEWED: Duration = Duration::from_millis(50);

/// A lease value, `1|<cluster>|<cluster UID>|<identity>|<nonce>|<grant>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseText {
    pub identity: String,
    pub nonce: String,
    pub grant: u64,
}

impl LeaseText {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('|').collect();
        let ["1", _, _, identity, nonce, grant] = parts[..] else {
            return None;
        };
        Some(Self {
            identity: identity.to_owned(),
            nonce: nonce.to_owned(),
            grant: grant.parse().ok()?,
        })
    }
}

/// Returns the end of a lease after a read that puts it at `seen`. Every read gives an upper bound, and the least of
/// them is the nearest, until a renewal moves the end.
#[must_use]
pub fn nearest_end(known: BootInstant, seen: BootInstant) -> BootInstant {
    if seen > known + RENEWED {
        seen
    } else {
        known.min(seen)
    }
}

/// The state of one master in one read.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The instant at which the answer was read.
    pub at: BootInstant,
    pub run_id: String,
    pub seal: Option<String>,
    /// Whether a candidate has begun to seal it.
    pub probed: bool,
    /// The text and the remaining milliseconds of the lease of each lock.
    leases: Vec<(Option<String>, i64)>,
}

impl Shown {
    /// Reports whether the seal is that of the present run.
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.seal.as_ref() == Some(&self.run_id)
    }

    #[must_use]
    pub fn any_lease(&self) -> bool {
        self.leases.iter().any(|(text, _)| text.is_some())
    }

    /// Returns the lease of each lock, and its end.
    pub fn leases(&self) -> impl Iterator<Item = (Option<LeaseText>, BootInstant)> {
        self.leases.iter().map(|(text, left)| {
            // Negative: the lease ended between the two commands. If another lease follows it there, this read gives
            // that lease's end to this one, and the next read corrects it.
            let lease = text.as_deref().and_then(LeaseText::parse).filter(|_| *left >= 0);
            (
                lease,
                self.at + Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
            )
        })
    }
}

/// Reads every master repeatedly, from a thread for each. Drop ends the threads.
pub struct Poller {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Poller {
    /// Passes each read of a master, with its index, to `report`: `None` while the master is down, hangs or restarts.
    ///
    /// # Errors
    /// Returns an error for a url that cannot be used.
    pub fn start(
        urls: &[String],
        locks: &[String],
        every: Duration,
        report: impl Fn(usize, Option<Shown>) + Clone + Send + 'static,
    ) -> RedisResult<Self> {
        let clients: Vec<Client> = urls
            .iter()
            .map(|url| Client::open(url.as_str()))
            .collect::<RedisResult<_>>()?;
        let (stop, questions) = (Arc::<AtomicBool>::default(), questions(locks));
        let threads = clients.into_iter().enumerate().map(|(master, client)| {
            let (stop, questions, report) = (Arc::clone(&stop), questions.clone(), report.clone());
            thread::spawn(move || {
                let mut connection = None;
                while !stop.load(Ordering::Relaxed) {
                    let shown = read_master(&client, &mut connection, &questions);
                    if shown.is_err() {
                        connection = None;
                    }
                    let pause = if connection.is_some() { every } else { REDIAL };
                    report(master, shown.ok());
                    thread::sleep(pause);
                }
            })
        });
        Ok(Self {
            threads: threads.collect(),
            stop,
        })
    }

    /// Reports whether every thread still runs; a thread that ended sees nothing more.
    #[must_use]
    pub fn all_run(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // `all_run` has already reported a panic in the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

/// Reads the leases before the seal: if the seal is missing then, the master had the lease without a seal.
fn questions(locks: &[String]) -> Pipeline {
    let mut questions = redis::pipe();
    for lock in locks {
        let key = format!("{PREFIX}:lease:{lock}");
        questions.cmd("GET").arg(&key).cmd("PTTL").arg(&key);
    }
    let (meta, probe) = (format!("{PREFIX}:meta"), format!("{PREFIX}:probe"));
    questions
        .cmd("HGET")
        .arg(meta)
        .arg("seal")
        .cmd("EXISTS")
        .arg(probe);
    questions
}

/// A connection and the run that it leads to; no connection outlives a run.
type Dialled = (Connection, String);

fn read_master(
    client: &Client,
    connection: &mut Option<Dialled>,
    questions: &Pipeline,
) -> RedisResult<Shown> {
    let (connection, run_id) = match connection {
        Some(dialled) => dialled,
        None => connection.insert(dial(client)?),
    };
    let mut answers: Vec<Value> = questions.query(connection)?;
    let at = clock::now();
    let probed = from_redis_value(answers.pop().unwrap_or(Value::Nil))?;
    let seal = from_redis_value(answers.pop().unwrap_or(Value::Nil))?;
    let mut leases = Vec::with_capacity(answers.len() / 2);
    let mut answers = answers.into_iter();
    while let (Some(text), Some(left)) = (answers.next(), answers.next()) {
        leases.push((from_redis_value(text)?, from_redis_value(left)?));
    }
    Ok(Shown {
        at,
        run_id: run_id.clone(),
        seal,
        probed,
        leases,
    })
}

fn dial(client: &Client) -> RedisResult<Dialled> {
    let mut connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let info: InfoDict = redis::cmd("INFO").arg("server").query(&mut connection)?;
    Ok((connection, info.get("run_id").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_documented_one() {
        let text = "1|eu-1|uid|replica-a|000000000000000000000000000000ab|42";
        let lease = LeaseText::parse(text).unwrap();
        assert_eq!((lease.identity.as_str(), lease.grant), ("replica-a", 42));
        assert_eq!(LeaseText::parse("2|eu-1|uid|replica-a|ab|42"), None);
        assert_eq!(LeaseText::parse("nobody"), None);
    }

    #[test]
    fn the_least_bound_of_an_end_counts_until_a_renewal() {
        let ms = |n: u64| BootInstant::from_nanos(n * 1_000_000);
        assert_eq!(nearest_end(ms(800), ms(799)), ms(799));
        assert_eq!(nearest_end(ms(800), ms(803)), ms(800));
        assert_eq!(nearest_end(ms(800), ms(1500)), ms(1500));
    }
}
