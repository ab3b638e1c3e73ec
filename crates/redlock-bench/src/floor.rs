//! Implements the lower bound of any Redlock: the round trips.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Value, aio::MultiplexedConnection};

pub const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
pub const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

#[derive(Clone)]
pub struct Floor {
    connections: Vec<MultiplexedConnection>,
    release: String,
    renew: String,
}

impl Floor {
    pub async fn connect(urls: &[String]) -> Self {
        let mut connections = Vec::new();
        let (mut release, mut renew) = (String::new(), String::new());
        for url in urls {
            let client = redis::Client::open(url.as_str()).unwrap();
            let config =
                redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .unwrap();
            release = load(RELEASE, &mut connection).await;
            renew = load(RENEW, &mut connection).await;
            connections.push(connection);
        }
        Self {
            connections,
            release,
            renew,
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

    /// Loads another script on all connections.
    pub async fn load(&self, text: &str) -> String {
        let mut sha = String::new();
        for connection in &self.connections {
            sha = load(text, &mut connection.clone()).await;
        }
        sha
    }

    /// Calls a script. Returns once a majority has answered that it took effect.
    pub async fn call(&self, command: &redis::Cmd) {
        assert!(self.round(command).await > self.connections.len() / 2);
    }
}

pub async fn load(text: &str, connection: &mut MultiplexedConnection) -> String {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(text);
    command.query_async(connection).await.unwrap()
}
