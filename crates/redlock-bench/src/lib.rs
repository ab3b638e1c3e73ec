//! Shares the floor of bare Redis commands and the format of numbers between all measurements.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    missing_debug_implementations,
    reason = "a measurement that fails must stop; numbers for people"
)]

use std::future::Future;

pub mod floor;
pub mod stats;

/// Runs measurements. Their argument selects scenarios by the command line: all of them, or those whose name contains
/// an argument.
pub fn run<F: Future<Output = ()>>(measurements: impl FnOnce(Box<dyn Fn(&str) -> bool + Send + Sync>) -> F) {
    // `cargo test --benches` passes flags.
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let wanted = move |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only.as_str()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("{}", stats::machine());
    runtime.block_on(measurements(Box::new(wanted)));
}
