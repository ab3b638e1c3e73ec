//! Starts several independent masters.

use std::ops::Deref;
use std::thread;

use super::{RedisServer, RedisServerError, ServerOptions};

/// The N masters of a quorum, each a server of its own. Dereferences to a slice of [`RedisServer`].
#[derive(Debug)]
pub struct RedisServers(Vec<RedisServer>);

impl RedisServers {
    /// Starts the servers in parallel. If one fails, all of them are removed.
    pub fn start(count: usize, options: &ServerOptions) -> Result<Self, RedisServerError> {
        thread::scope(|scope| {
            let starts: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| RedisServer::start(options)))
                .collect();
            starts
                .into_iter()
                .map(|start| {
                    start
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect::<Result<Vec<_>, _>>()
        })
        .map(Self)
    }

    /// Returns the urls, in the order of the servers.
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::url).collect()
    }
}

impl Deref for RedisServers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}
