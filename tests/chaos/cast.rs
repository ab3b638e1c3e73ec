//! Names the processes, locks and masters: fixed, so that a plan can refer to them.

use std::time::Duration;

pub const MASTERS: usize = 5;
pub const MAJORITY: usize = 3;
/// Masters `m0` to `m3` keep an append-only file, `m4` does not.
pub const WITH_AOF: usize = 4;

/// The lease of every lock, and the longest of the quorum: a master that lost its seal has it again after 7.1 s, and
/// a process that is frozen for 3 s has lost its lease.
pub const LEASE: Duration = Duration::from_secs(3);

/// Name and cluster of each operator. All of them contend for all [`OPERATOR_LOCKS`].
pub const OPERATORS: [(&str, &str); 3] = [("op-a", "eu-1"), ("op-b", "eu-1"), ("op-c", "us-1")];
/// Names of objects in the namespace `chaos`.
pub const OPERATOR_LOCKS: [&str; 4] = ["api", "billing", "index", "mail"];

/// Name and lock of each `redlock run`.
pub const RUNS: [(&str, &str); 4] = [
    ("run-a", "chaos/ledger"),
    ("run-b", "chaos/ledger"),
    ("run-c", "chaos/report"),
    ("run-d", "chaos/report"),
];
pub const RUN_LOCKS: [&str; 2] = ["chaos/ledger", "chaos/report"];

pub const PROCESSES: usize = OPERATORS.len() + RUNS.len();

/// Returns the name of a process: first the operators, then the runs.
pub fn name(process: usize) -> &'static str {
    match process.checked_sub(OPERATORS.len()) {
        None => OPERATORS[process].0,
        Some(run) => RUNS[run].0,
    }
}

/// Returns the name of a lock of the operators on the masters.
pub fn operator_lock(index: usize) -> String {
    format!("chaos/{}", OPERATOR_LOCKS[index])
}

/// Returns all locks, by their names on the masters.
pub fn locks() -> Vec<String> {
    let of_operators = (0..OPERATOR_LOCKS.len()).map(operator_lock);
    of_operators
        .chain(RUN_LOCKS.iter().map(|lock| (*lock).to_owned()))
        .collect()
}
