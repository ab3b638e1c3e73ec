//! What the integration tests share: real servers, broken networks, certificates, child processes, bounded waits.
//!
//! The one `mod.rs` of the project: cargo would make a test binary of its own out of `tests/common.rs`.

// Each test binary uses a part of it. The lints' leave for tests covers test functions, not what they share.
#![allow(dead_code, unreachable_pub, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
mod connection;
mod eventually;
pub mod http;
pub mod masters;
pub mod pages;
pub mod processes;
mod proxy;
mod resource;
mod tls;
pub mod tools;

pub use child::ChildGuard;
pub use connection::{kept, patient};
pub use eventually::{eventually, eventually_blocking};
pub use proxy::{Mode, Proxy};
pub use redlock::demo::redis_server::{Persistence, RedisServer, RedisServers, ServerOptions, TlsFiles};
pub use resource::{Answer, Resource};
pub use tls::TlsMaterial;

/// A loopback port that nothing listens on, never the same one twice.
pub fn free_port() -> u16 {
    redlock::demo::redis_server::free_port().expect("no free port")
}

/// What is set here for redlock must not reach a process under test.
pub fn forget_variables(command: &mut std::process::Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLOCK_")) {
        command.env_remove(name);
    }
}
