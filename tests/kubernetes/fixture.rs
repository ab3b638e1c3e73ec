//! A Kubernetes control plane of this machine's own: etcd, API server and controllers, with certificates and RBAC on.
//!
//! Owns the processes, their files, and the access to them: a client or a kubeconfig of the administrator,
//! and those of a ServiceAccount, which the operator uses. Nothing runs in a pod, and only the test makes a
//! pod ready, unless it starts a [`Kubelet`]. Does not depend on a test harness, so that a bench can use it,
//! too; its user must have `tests/common` as `crate::common`.

// Each program uses a part of this module.
#![allow(dead_code, unreachable_pub, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "fixture/assets.rs"]
mod assets;
#[path = "fixture/audit.rs"]
pub mod audit;
#[path = "fixture/certificates.rs"]
mod certificates;
#[path = "fixture/chart.rs"]
mod chart;
#[path = "fixture/commands.rs"]
mod commands;
#[path = "fixture/control_plane.rs"]
mod control_plane;
#[path = "fixture/crds.rs"]
mod crds;
#[path = "fixture/kubeconfig.rs"]
mod kubeconfig;
#[path = "fixture/kubelet.rs"]
pub mod kubelet;
#[path = "fixture/logs.rs"]
mod logs;
#[path = "fixture/namespace.rs"]
mod namespace;
#[path = "fixture/operator.rs"]
mod operator;
#[path = "fixture/pool.rs"]
mod pool;
#[path = "fixture/process.rs"]
mod process;
#[path = "fixture/scheduler.rs"]
mod scheduler;

use std::time::Duration;

pub use assets::{go_program, helm};
pub use chart::{FENCING, SERVICE_ACCOUNT};
pub use control_plane::{ControlPlane, Options};
pub use crds::established;
pub use kubeconfig::client_of;
pub use kubelet::Kubelet;
pub use namespace::TestNamespace;
pub use operator::Operator;
pub use pool::PooledPlane;
pub use process::{Process, state};
pub use scheduler::Scheduler;

/// Returns the number in this variable, or the default.
pub fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Returns the seed of a test's random parts: `REDLOCK_SEED`, or a new one, which is printed for a rerun.
pub fn seed() -> u64 {
    let given = std::env::var("REDLOCK_SEED").ok();
    let seed = given.map_or_else(
        || fastrand::u64(..1_000_000),
        |seed| seed.parse().expect("a number"),
    );
    println!("REDLOCK_SEED={seed}");
    seed
}

/// Generous, for a busy machine; a correct run stays far below.
pub const BOUND: Duration = Duration::from_secs(60);
