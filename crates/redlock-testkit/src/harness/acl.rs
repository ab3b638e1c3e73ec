//! Provides the Redis user that docs/redis-acl.md documents.

use redlock_client::masters::{Credentials, MastersConfig, Secret};

use super::masters::config;
use crate::{RedisServer, RedisServers, ServerOptions};

pub const PASSWORD: &str = "of-the-documented-user";
const PAGE: &str = include_str!("../../../../docs/redis-acl.md");

/// Returns the documented line of the user `redlock`, without its leading `user`, with a password.
pub fn line() -> String {
    line_of("redlock")
}

/// Returns the documented line of this user in the same form.
pub fn line_of(user: &str) -> String {
    let start = format!("{user} on ");
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix("user "));
    let mut lines = lines.filter(|line| line.starts_with(&start));
    let line = lines.next().expect("a line that begins with user and the name");
    assert_eq!(lines.next(), None, "one line");
    line.replace("PASSWORD", PASSWORD)
}

/// Starts three servers with these users.
pub fn servers(users: Vec<String>) -> RedisServers {
    let options = ServerOptions {
        users,
        ..ServerOptions::default()
    };
    RedisServers::start(3, &options).unwrap()
}

/// Returns the configuration for a user with that password.
pub fn as_user(servers: &[RedisServer], user: &str) -> MastersConfig {
    let credentials = Credentials {
        username: Some(user.to_owned()),
        password: Some(Secret::new(PASSWORD.to_owned())),
        ..Credentials::default()
    };
    MastersConfig {
        credentials,
        ..config(servers)
    }
}
