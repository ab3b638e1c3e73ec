//! Opens Redis connections for tests that observe from outside.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult};

use crate::RedisServer;

/// Generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a connection with a long response timeout; the default of the library is half a second.
pub async fn patient(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Runs one command as the user with all permissions.
pub async fn admin<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = Client::open(server.url()).unwrap();
    let mut connection = patient(&client).await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}
