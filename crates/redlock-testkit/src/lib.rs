//! Provides real Redis servers that break on demand.
//!
//! [`RedisServer`] is a `redis-server` process that can be paused, killed and started empty, and that never outlives
//! the program that started it. [`observer`] reads masters from outside. The feature `harness` adds the surroundings of
//! tests and measurements: [`Proxy`], a network that delays, swallows and resets; [`TlsMaterial`], certificates;
//! [`FakeServer`], a program that is not Redis; [`HttpAttack`], hostile HTTP clients; [`ChildGuard`] for programs under test; [`write_executable`] for
//! programs that replace others; [`eventually`] for bounded waits; [`masters`], the locks of redlock-client on these
//! servers.

#[cfg(feature = "harness")]
mod harness;
pub mod observer;
mod server;

#[cfg(feature = "harness")]
pub use harness::{
    AttackReport, AttackedPaths, ChildGuard, FakeServer, HttpAttack, Mode, Proxy, Scripts, TlsMaterial, acl,
    admin, attack_http, eventually, eventually_blocking, limit_open_files, longest_stall_since, masters,
    patient, pause_after, peak_resident_kib, write_executable,
};
pub use server::{
    Persistence, RedisServer, RedisServerError, RedisServers, ServerOptions, TlsFiles, free_port,
};
