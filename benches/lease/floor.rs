//! The least that any Redlock can do: the round trips.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Value, aio::MultiplexedConnection};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// The protocol's own renewal, with all its checks.
const FULL_RENEW: &str = concat!(
    include_str!("../../crates/redlock-core/src/scripts/fields_none.lua"),
    include_str!("../../crates/redlock-core/src/scripts/preamble.lua"),
    include_str!("../../crates/redlock-core/src/scripts/obstacle.lua"),
    include_str!("../../crates/redlock-core/src/scripts/renew.lua"),
);

#[derive(Clone)]
pub struct Floor {
    connections: Vec<MultiplexedConnection>,
    release: String,
    renew: String,
    full_renew: String,
}

impl Floor {
    pub async fn connect(urls: &[String]) -> Self {
        let mut connections = Vec::new();
        let (mut release, mut renew, mut full_renew) = (String::new(), String::new(), String::new());
        for url in urls {
            let client = redis::Client::open(url.as_str()).unwrap();
            let config =
                redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .unwrap();
            release = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(RELEASE)
                .query_async(&mut connection)
                .await
                .unwrap();
            renew = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(RENEW)
                .query_async(&mut connection)
                .await
                .unwrap();
            full_renew = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(FULL_RENEW)
                .query_async(&mut connection)
                .await
                .unwrap();
            connections.push(connection);
        }
        Self {
            connections,
            release,
            renew,
            full_renew,
        }
    }

    async fn round(&self, command: &redis::Cmd) -> usize {
        let mut replies: FuturesUnordered<_> = self
            .connections
            .iter()
            .map(|c| {
                let mut connection = c.clone();
                async move { connection.send_packed_command(command).await }
            })
            .collect();
        let mut granted = 0;
        while let Some(reply) = replies.next().await {
            let script = matches!(&reply, Ok(Value::Array(items)) if items.last() == Some(&Value::Int(1)));
            granted += usize::from(script || matches!(reply, Ok(Value::Okay | Value::Int(1))));
            if granted > self.connections.len() / 2 {
                break;
            }
        }
        granted
    }

    pub async fn acquire(&self, key: &str, value: &str) {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value).arg("NX").arg("PX").arg(15_000);
        assert!(self.round(&command).await > self.connections.len() / 2);
    }

    pub async fn renew(&self, key: &str, value: &str) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.renew).arg(1).arg(key).arg(value).arg(15_000);
        assert!(self.round(&command).await > self.connections.len() / 2);
    }

    pub async fn release(&self, key: &str, value: &str) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(key).arg(value);
        assert!(self.round(&command).await > self.connections.len() / 2);
    }

    /// What the masters do for a renewal of the protocol, without what this process does for it.
    pub async fn full_renew(&self, fingerprint: &str, name: &str, stem: &str) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.full_renew).arg(3).arg("redlock:meta");
        command
            .arg(format!("redlock:lease:{name}"))
            .arg(format!("redlock:reserved:{name}"));
        command
            .arg(u64::MAX >> 11)
            .arg(fingerprint)
            .arg("local/local")
            .arg(stem)
            .arg(1)
            .arg(15_000);
        assert!(self.round(&command).await > self.connections.len() / 2);
    }
}
