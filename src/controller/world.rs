//! Runs whole operators, as they ship, in simulated clusters and in virtual time.
//!
//! One runtime with one thread and a paused clock runs every replica of every cluster: executor, index, target tasks,
//! electors, engines, and the HTTP side between siblings. The API server, its controllers, the masters and the network are
//! those of `redlock-world`. Users act on the objects of the world, and an observer judges from objects and processes
//! alone.

mod api_client;
mod candidate;
mod cluster;
mod everyday;
mod judge;
mod manifests;
mod observer;
mod random;
mod rates;
mod replica;
mod story;
mod universe;
mod users;
mod workloads;
mod write_log;

/// Returns the number in an environment variable.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
