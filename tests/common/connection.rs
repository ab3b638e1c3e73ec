//! A connection of somebody who watches from outside.

use std::time::Duration;

use redis::{Client, Connection, RedisResult};

/// The one that is there, or a new one; neither connecting nor an answer takes longer than `patience`.
pub fn kept<'a>(
    client: &Client,
    connection: &'a mut Option<Connection>,
    patience: Duration,
) -> RedisResult<&'a mut Connection> {
    match connection {
        Some(connection) => Ok(connection),
        None => {
            let new = client.get_connection_with_timeout(patience)?;
            new.set_read_timeout(Some(patience))?;
            Ok(connection.insert(new))
        }
    }
}
