//! The tables of masters and locks.

use std::{fmt::Write, time::Duration};

use super::{
    super::Reach,
    super::text::{or_dash, seconds, table},
    LockStatus, MasterAccount, MasterReport, Status,
};

pub(super) fn write(status: &Status) -> String {
    quorum(status) + &locks_or_none(status)
}

pub(super) fn locks_and_votes(status: &Status) -> String {
    let mut text = locks_or_none(status);
    text.push_str(&votes(status));
    for (master, why) in status.masters.iter().filter_map(trouble) {
        let _ = writeln!(text, "  {master}: {why}");
    }
    text
}

fn locks_or_none(status: &Status) -> String {
    let mut text = String::new();
    if status.locks.is_empty() && status.reach == Reach::Majority {
        text.push_str("no lock is held or reserved\n");
    } else if status.locks.is_empty() {
        text.push_str("no held lock was found, but too few masters answer to exclude one\n");
    } else {
        text.push_str(&locks(status));
    }
    if !status.complete {
        text.push_str("\nnot all keys were read in time, so locks may be missing; name the lock\n");
    }
    text
}

/// Returns the masters, their votes and the quorum that they result in.
pub(super) fn quorum(status: &Status) -> String {
    let mut text = masters(&status.masters);
    for (master, why) in status.masters.iter().filter_map(trouble) {
        let _ = writeln!(text, "  {master}: {why}");
    }
    text.push_str(&votes(status));
    let origin = if status.fingerprint_stored {
        ""
    } else {
        " (not read from the masters)"
    };
    let id = status
        .quorum_id
        .as_deref()
        .unwrap_or("unknown: no majority of the masters shows one");
    let _ = writeln!(text, "quorum: {}{origin}\nquorum id: {id}\n", status.fingerprint);
    registers(&mut text, &status.masters);
    text
}

fn votes(status: &Status) -> String {
    format!(
        "\n{} of {} masters vote, {} are needed; {} answer\n",
        status.voting,
        status.masters.len(),
        status.majority,
        status.answering
    )
}

fn trouble(master: &MasterReport) -> Option<(&str, &str)> {
    let why = master.trouble.as_deref().or(master.refused.as_deref())?;
    Some((&master.name, why))
}

fn masters(all: &[MasterReport]) -> String {
    let header = [
        "MASTER",
        "URL",
        "VOTE",
        "ROLE",
        "SERVER",
        "PERSISTENCE",
        "EVICTION",
        "LATENCY",
        "COUNTER",
    ];
    let row = |master: &MasterReport| {
        vec![
            master.name.clone(),
            master.url.clone(),
            master.standing(),
            or_dash(master.role.clone()),
            or_dash(master.program()),
            or_dash(master.persistence.map(str::to_owned)),
            or_dash(master.eviction_policy.clone()),
            or_dash(master.latency_milliseconds.map(|took| format!("{took:.1} ms"))),
            or_dash(master.counter.map(|counter| counter.to_string())),
        ]
    };
    table(&header, all.iter().map(row))
}

fn registers(text: &mut String, all: &[MasterReport]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .flat_map(|master| {
            let registers = master.registers.iter().flatten();
            registers.map(|(field, value)| vec![master.name.clone(), field.clone(), value.clone()])
        })
        .collect();
    if !rows.is_empty() {
        text.push_str(&table(&["MASTER", "REGISTER", "VALUE"], rows));
        text.push('\n');
    }
}

fn locks(status: &Status) -> String {
    let header = [
        "LOCK", "STATE", "HOLDER", "CLUSTER", "TOKEN", "LEFT", "RESERVED", "MASTERS",
    ];
    let mut rows = Vec::new();
    for lock in &status.locks {
        rows.push(vec![
            lock.lock_name.clone(),
            lock.state.word().to_owned(),
            or_dash(lock.holder_identity.clone()),
            or_dash(lock.holder_cluster.clone()),
            or_dash(lock.fencing_token.map(|token| token.to_string())),
            or_dash(
                lock.holder_identity
                    .as_ref()
                    .map(|_| left(lock.remaining_milliseconds)),
            ),
            reserved(lock.reserved.as_ref(), lock.reserved_milliseconds),
            format!("{}/{}", lock.agreeing, lock.accounts.len()),
        ]);
        let shown = lock
            .accounts
            .iter()
            .filter(|account| status.every_account || differs(lock, account));
        rows.extend(shown.map(account));
    }
    table(&header, rows)
}

pub(super) fn differs(lock: &LockStatus, account: &MasterAccount) -> bool {
    account.unreadable.is_some()
        || account.holder != lock.holder_identity
        || account.reserved != lock.reserved
}

pub(super) fn account(account: &MasterAccount) -> Vec<String> {
    let state = match account {
        MasterAccount { error: Some(_), .. } => "unknown",
        MasterAccount { holder: Some(_), .. } => "held",
        MasterAccount {
            unreadable: Some(_), ..
        } => "unreadable",
        MasterAccount {
            reserved: Some(_), ..
        } => "reserved",
        _ => "free",
    };
    let lease = account.holder.is_some() || account.unreadable.is_some();
    vec![
        format!("  at {}", account.master),
        state.to_owned(),
        or_dash(
            account
                .error
                .clone()
                .or_else(|| account.holder.clone())
                .or_else(|| account.unreadable.clone()),
        ),
        or_dash(account.cluster.clone()),
        or_dash(account.grant.map(|grant| grant.to_string())),
        or_dash(lease.then(|| left(account.remaining_milliseconds))),
        reserved(account.reserved.as_ref(), account.reserved_milliseconds),
        String::new(),
    ]
}

pub(super) fn left(milliseconds: Option<u64>) -> String {
    seconds(milliseconds.map(Duration::from_millis))
}

pub(super) fn reserved(cluster: Option<&String>, milliseconds: Option<u64>) -> String {
    or_dash(cluster.map(|cluster| format!("{cluster}, {}", left(milliseconds))))
}
