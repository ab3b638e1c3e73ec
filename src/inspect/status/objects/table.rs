//! The tables of declared locks.

use std::fmt::Write;

use super::{
    super::{
        super::text::{or_dash, table},
        DeclaredStatus, Source, table as masters,
    },
    ObjectsStatus, QuorumShown,
};

pub(super) fn write(status: &ObjectsStatus) -> String {
    let mut text = String::new();
    for quorum in &status.quorums {
        write_quorum(&mut text, quorum);
    }
    if status.locks.is_empty() {
        let _ = match &status.namespace {
            Some(namespace) => writeln!(
                text,
                "no LeaderLock in namespace {namespace}; -A shows all namespaces"
            ),
            None => writeln!(text, "no LeaderLock in any namespace"),
        };
    } else {
        text.push_str(&locks(status));
    }
    for lock in &status.locks {
        if let Some(trouble) = &lock.trouble {
            let _ = writeln!(text, "{trouble}");
        }
    }
    for unread in &status.unread {
        let _ = writeln!(text, "cannot be read by this version: {unread}");
    }
    text
}

fn write_quorum(text: &mut String, quorum: &QuorumShown) {
    let _ = writeln!(text, "RedisQuorum {}", quorum.name);
    if let Some(seen) = &quorum.seen {
        text.push_str(&masters::quorum(seen));
    }
    if let Some(trouble) = &quorum.trouble {
        let _ = writeln!(
            text,
            "{trouble}\n\nfrom the statuses of the objects, as operators last wrote them, and not from the masters:\n"
        );
    }
}

fn locks(status: &ObjectsStatus) -> String {
    let several = status.namespace.is_none();
    let mut header = vec![
        "NAME", "READY", "ROLE", "STATE", "HOLDER", "CLUSTER", "TOKEN", "LEFT", "RESERVED", "MASTERS",
    ];
    if several {
        header.insert(0, "NAMESPACE");
    }
    let mut rows = Vec::new();
    let mut push = |namespace: &str, mut row: Vec<String>| {
        if several {
            row.insert(0, namespace.to_owned());
        }
        rows.push(row);
    };
    for lock in &status.locks {
        push(&lock.namespace, row(lock));
        let accounts = lock.seen.accounts.iter();
        let shown = accounts.filter(|account| status.every_account || masters::differs(&lock.seen, account));
        for account in shown {
            push("", beside(masters::account(account)));
        }
        if lock.differs() {
            push("", status_row(lock));
        }
    }
    table(&header, rows)
}

pub(in crate::inspect::status) fn row(lock: &DeclaredStatus) -> Vec<String> {
    let seen = &lock.seen;
    let ready = lock.condition("Ready").map(|ready| match ready.status.as_str() {
        "True" => "True".to_owned(),
        status => format!("{status} ({})", ready.reason),
    });
    let role = lock.status.as_ref().and_then(|status| status.role);
    let by_masters = lock.source == Source::Masters;
    let held = seen.holder_identity.is_some() && by_masters;
    vec![
        lock.name.clone(),
        or_dash(ready),
        or_dash(role.map(|role| format!("{role:?}"))),
        seen.state.word().to_owned(),
        or_dash(seen.holder_identity.clone()),
        or_dash(seen.holder_cluster.clone()),
        or_dash(seen.fencing_token.map(|token| token.to_string())),
        or_dash(held.then(|| masters::left(seen.remaining_milliseconds))),
        masters::reserved(seen.reserved.as_ref(), seen.reserved_milliseconds),
        if by_masters {
            format!("{}/{}", seen.agreeing, seen.accounts.len())
        } else {
            "not asked".to_owned()
        },
    ]
}

/// Returns the row of one master's account, which has neither readiness nor role.
fn beside(account: Vec<String>) -> Vec<String> {
    let mut row = account;
    row.splice(1..1, [String::new(), String::new()]);
    row
}

/// Returns the row of the object's status, for a lock of which the masters show another holder.
fn status_row(lock: &DeclaredStatus) -> Vec<String> {
    let status = lock.status.clone().unwrap_or_default();
    let state = if status.holder_identity.is_some() {
        "held"
    } else {
        "free"
    };
    let mut row = vec![
        "  from its status".to_owned(),
        String::new(),
        String::new(),
        state.to_owned(),
        or_dash(status.holder_identity),
        or_dash(status.holder_cluster),
        or_dash(status.fencing_token.map(|token| token.to_string())),
    ];
    row.resize(10, String::new());
    row
}
