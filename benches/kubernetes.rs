//! `make bench-kubernetes`: measures the shipped operator with an API server and five real masters.
//!
//! Each scenario has its own control plane, masters and objects on this machine, and prints a Markdown table.
//! The claims of a replica are read from its log and from `/locks`; the holders, from the masters.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails must stop"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    unreachable_pub,
    dead_code,
    reason = "numbers for people; a program of several files, some of them shared"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/kubernetes/fixture.rs"]
mod fixture;

#[path = "../tests/kubernetes/node.rs"]
mod node;

#[path = "kubernetes/fencing.rs"]
mod fencing;
#[path = "kubernetes/log.rs"]
mod log;
#[path = "kubernetes/majority.rs"]
mod majority;
#[path = "kubernetes/masters.rs"]
mod masters;
#[path = "kubernetes/rolling.rs"]
mod rolling;
#[path = "kubernetes/scale.rs"]
mod scale;
#[path = "kubernetes/server.rs"]
mod server;
#[path = "kubernetes/stage.rs"]
mod stage;
#[path = "kubernetes/statuses.rs"]
mod statuses;
#[path = "kubernetes/table.rs"]
mod table;
#[path = "kubernetes/takeover.rs"]
mod takeover;
#[path = "kubernetes/targets.rs"]
mod targets;
#[path = "kubernetes/usage.rs"]
mod usage;
#[path = "kubernetes/writes.rs"]
mod writes;

fn main() {
    redlock_bench::run(|wanted| async move {
        if wanted("takeover") {
            takeover::run().await;
        }
        if wanted("rolling") {
            rolling::run().await;
        }
        if wanted("server") {
            server::run().await;
        }
        if wanted("majority") {
            majority::run().await;
        }
        if wanted("writes") {
            writes::run().await;
        }
        if wanted("targets") {
            targets::run().await;
        }
        if wanted("fencing") {
            fencing::run().await;
        }
        if wanted("scale") {
            scale::run().await;
        }
    });
}
