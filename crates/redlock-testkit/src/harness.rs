//! Provides the environment of a test: proxies, certificates, child processes, bounded waits. Panics when an
//! expectation of a test fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue fails"
)]

pub mod acl;
mod child;
mod connection;
mod eventually;
mod executable;
mod fake;
mod http_attack;
pub mod masters;
mod proxy;
mod stall;
mod tls;

pub use child::ChildGuard;
pub use connection::{admin, patient};
pub use eventually::{eventually, eventually_blocking, pause_after};
pub use executable::write_executable;
pub use fake::{FakeServer, Scripts};
pub use http_attack::{
    AttackReport, AttackedPaths, HttpAttack, attack_http, limit_open_files, peak_resident_kib,
};
pub use proxy::{Mode, Proxy};
pub use stall::longest_stall_since;
pub use tls::TlsMaterial;
