//! Reads the state of the masters with plain commands: nothing here uses the code under measurement.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redlock::clock;
use redlock_testkit::RedisServers;
use tokio::sync::Mutex;

pub struct Masters(Vec<Master>);

struct Master {
    client: redis::Client,
    /// `None` after an error: a killed master needs a new connection.
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Master {
    async fn connection(&self) -> Option<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if slot.is_none() {
            // A stopped master leaves requests unanswered, so the client gives up after this timeout.
            let config =
                redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
            let opened = self.client.get_multiplexed_async_connection_with_config(&config);
            *slot = opened.await.ok();
        }
        slot.clone()
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Option<T> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer.ok()
    }
}

/// A lease as stored on the masters.
#[derive(Clone, Debug)]
pub struct Lease {
    pub identity: String,
    nonce: String,
    /// The grant of each master: the token of the lease is one of them.
    pub grants: Vec<u64>,
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        self.nonce == other.nonce
    }
}

impl Masters {
    pub fn of(servers: &RedisServers) -> Self {
        let master = |url| Master {
            client: redis::Client::open(url).unwrap(),
            connection: Mutex::default(),
        };
        Self(servers.urls().into_iter().map(master).collect())
    }

    /// Returns the holder of each lock on a majority, from one `MGET` per master.
    pub async fn holders(&self, locks: &[String]) -> Vec<Option<Lease>> {
        let mut leases: Vec<Vec<Lease>> = vec![Vec::new(); locks.len()];
        let mut ask = redis::cmd("MGET");
        for lock in locks {
            ask.arg(format!("redlock:lease:{lock}"));
        }
        let answers = join_all(
            self.0
                .iter()
                .map(|master| master.ask::<Vec<Option<String>>>(&ask)),
        )
        .await;
        for values in answers.into_iter().flatten() {
            for (leases, value) in leases.iter_mut().zip(values) {
                let Some(lease) = value.as_deref().and_then(lease) else {
                    continue;
                };
                match leases.iter_mut().find(|known| known.nonce == lease.nonce) {
                    Some(known) => known.grants.extend(lease.grants),
                    None => leases.push(lease),
                }
            }
        }
        let majority = self.0.len() / 2 + 1;
        let of_majority =
            |leases: Vec<Lease>| leases.into_iter().find(|lease| lease.grants.len() >= majority);
        leases.into_iter().map(of_majority).collect()
    }

    /// Returns the time since 1970 at which a majority of the masters is free of each lock. The time is never
    /// too late, because it counts from before the request.
    pub async fn ends(&self, locks: &[String]) -> Vec<Duration> {
        let mut each = vec![Vec::new(); locks.len()];
        for master in &self.0 {
            let mut connection = master.connection().await.unwrap();
            let mut pipe = redis::pipe();
            for lock in locks {
                pipe.cmd("PTTL").arg(format!("redlock:lease:{lock}"));
            }
            let before = clock::unix_time();
            let left: Vec<i64> = pipe.query_async(&mut connection).await.unwrap();
            for (ends, left) in each.iter_mut().zip(left) {
                ends.push(before + Duration::from_millis(left.max(0) as u64));
            }
        }
        let majority = self.0.len() / 2 + 1;
        each.into_iter()
            .map(|mut ends| {
                ends.sort();
                ends[majority - 1]
            })
            .collect()
    }

    /// Returns the number of calls that all masters have counted: of scripts, and of all commands, including
    /// those that scripts call.
    pub async fn calls(&self) -> (u64, u64) {
        let (mut scripts, mut all) = (0, 0);
        for master in &self.0 {
            let info: String = master.ask(redis::cmd("INFO").arg("commandstats")).await.unwrap();
            for line in info.lines() {
                let Some((name, rest)) = line.split_once(":calls=") else {
                    continue;
                };
                let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
                all += calls;
                if name == "cmdstat_evalsha" {
                    scripts += calls;
                }
            }
        }
        (scripts, all)
    }
}

fn lease(value: &str) -> Option<Lease> {
    let parts: Vec<&str> = value.split('|').collect();
    let [_, _, _, identity, nonce, grant] = parts.as_slice() else {
        return None;
    };
    Some(Lease {
        identity: (*identity).to_owned(),
        nonce: (*nonce).to_owned(),
        grants: vec![grant.parse().ok()?],
    })
}
