//! Looks at one master, again and again, with plain commands.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Shared, lock};
use crate::tenure::LeaseText;
use redlock_client::clock;

/// The prefix of the keys on the masters, the default one.
const PREFIX: &str = "redlock";
/// Often enough to see a lease that stood for ten milliseconds. The end of a lease is known better than that: it is
/// shown in advance. More would slow down what is observed, on a machine with two cores.
const EVERY: Duration = Duration::from_millis(8);
/// A master on the loopback answers in a fraction of a millisecond, one that is stopped not at all.
const PATIENCE: Duration = Duration::from_millis(150);
const REDIAL: Duration = Duration::from_millis(20);

/// Value and remaining milliseconds of each lease, the seal and whether there is a probe.
struct Shown {
    leases: Vec<(Option<String>, i64)>,
    seal: Option<String>,
    probed: bool,
}

/// Runs until it is aborted.
pub(super) async fn run(master: usize, client: Client, locks: Vec<String>, record: Shared) {
    let questions = questions(&locks);
    loop {
        if let Ok((mut connection, run_id)) = connect(&client).await {
            if let Some(view) = lock(&record).masters.get_mut(master) {
                view.run_id = run_id;
            }
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                match ask(&mut connection, &questions, locks.len()).await {
                    Ok(shown) => write_down(master, &locks, shown, &record),
                    Err(_) => break,
                }
            }
        }
        // Down, hung or restarted: not an error of the observer, but what it is there to see.
        if let Some(view) = lock(&record).masters.get_mut(master) {
            view.answers = false;
        }
        sleep(REDIAL).await;
    }
}

async fn connect(client: &Client) -> RedisResult<(MultiplexedConnection, String)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    Ok((connection, info.get("run_id").unwrap_or_default()))
}

/// The leases before the seal: a lease that is seen, with no seal seen after it, stood there without one.
fn questions(locks: &[String]) -> Pipeline {
    let mut questions = redis::pipe();
    let keys: Vec<String> = locks
        .iter()
        .map(|lock| format!("{PREFIX}:lease:{lock}"))
        .collect();
    questions.cmd("MGET").arg(&keys);
    for key in &keys {
        questions.cmd("PTTL").arg(key);
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

async fn ask(
    connection: &mut MultiplexedConnection,
    questions: &Pipeline,
    locks: usize,
) -> RedisResult<Shown> {
    let answers: Vec<redis::Value> = questions.query_async(connection).await?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(redis::Value::Nil);
    let values: Vec<Option<String>> = redis::from_redis_value(next())?;
    let mut leases = Vec::with_capacity(locks);
    for value in values {
        leases.push((value, redis::from_redis_value(next())?));
    }
    Ok(Shown {
        leases,
        seal: redis::from_redis_value(next())?,
        probed: redis::from_redis_value(next())?,
    })
}

fn write_down(master: usize, locks: &[String], shown: Shown, record: &Shared) {
    let now = clock::now();
    let mut record = lock(record);
    let mut sealed = true;
    let any_lease = shown.leases.iter().any(|(value, _)| value.is_some());
    if let Some(view) = record.masters.get_mut(master) {
        view.answers = true;
        sealed = shown.seal.is_some_and(|seal| seal == view.run_id);
        view.sealed = sealed;
        view.probed = shown.probed;
        view.looks += 1;
        view.stray_leases += u64::from(any_lease && !sealed);
    }
    for (lock, (value, left)) in locks.iter().zip(shown.leases) {
        // Negative: it ended between the two commands. Another may follow it there: its end would be taken for this
        // one's, for one look, and the look after that corrects it.
        let lease = value.as_deref().and_then(LeaseText::parse).filter(|_| left >= 0);
        let ends = now + Duration::from_millis(u64::try_from(left).unwrap_or(0));
        if let Some(account) = record.accounts.get_mut(lock) {
            account.saw(master, lease, ends, now);
            if !sealed {
                account.has_no_vote(master);
            }
        }
    }
}
