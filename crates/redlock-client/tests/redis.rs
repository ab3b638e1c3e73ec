//! Tests the protocol on real Redis servers.

// The lints exempt test functions, but not the functions that the tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "redis/acl.rs"]
mod acl;
#[path = "redis/adopt.rs"]
mod adopt;
#[path = "redis/alarm.rs"]
mod alarm;
#[path = "redis/fence.rs"]
mod fence;
#[path = "redis/fenced_elector.rs"]
mod fenced_elector;
#[path = "redis/first_start.rs"]
mod first_start;
#[path = "redis/hostile.rs"]
mod hostile;
#[path = "redis/identity.rs"]
mod identity;
#[path = "redis/lease.rs"]
mod lease;
#[path = "redis/marks.rs"]
mod marks;
#[allow(dead_code, reason = "the simulation uses more of it")]
#[path = "../../redlock-core/tests/core/master.rs"]
mod master;
#[path = "redis/model.rs"]
mod model;
#[allow(dead_code, reason = "the simulation has more of them")]
#[path = "../../redlock-core/tests/core/plant.rs"]
mod plant;
#[path = "redis/process.rs"]
mod process;
#[path = "redis/programs.rs"]
mod programs;
#[allow(dead_code, reason = "the simulation uses more of it")]
#[path = "../../redlock-core/tests/core/rate.rs"]
mod rate;
#[path = "redis/rekey.rs"]
mod rekey;
#[path = "redis/release.rs"]
mod release;
#[path = "redis/renew.rs"]
mod renew;
#[path = "redis/reporters.rs"]
mod reporters;
#[path = "redis/restore.rs"]
mod restore;
#[path = "redis/retire.rs"]
mod retire;
#[path = "redis/seal.rs"]
mod seal;
#[path = "redis/seal_gate.rs"]
mod seal_gate;
#[path = "redis/slots.rs"]
mod slots;
#[path = "redis/specification.rs"]
mod specification;
#[path = "redis/tls.rs"]
mod tls;
#[path = "redis/unknown.rs"]
mod unknown;
#[path = "redis/waiting.rs"]
mod waiting;
