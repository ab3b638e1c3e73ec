//! The series of quorums and their masters, from their state at the scrape.

use super::{
    Source,
    text::{Text, labels},
};
use crate::masters::{MasterFacts, MasterStatus};

struct Master<'a> {
    labels: String,
    status: MasterStatus,
    failure_domain: &'a str,
}

pub(super) fn write(text: &mut Text, sources: &[Source<'_>]) {
    let statuses: Vec<Vec<MasterStatus>> = sources.iter().map(|source| source.masters.status()).collect();
    type Count = fn(&Source<'_>, &[MasterStatus]) -> usize;
    let families: [(&str, &str, Count); 5] = [
        ("redlock_quorum_masters", "Masters of the quorum.", |_, all| {
            all.len()
        }),
        (
            "redlock_quorum_masters_available",
            "Masters of the quorum that are connected.",
            |_, all| all.iter().filter(|master| master.connected).count(),
        ),
        (
            "redlock_quorum_masters_sealed",
            "Masters of the quorum whose votes count now.",
            |_, all| all.iter().filter(|master| master.votes()).count(),
        ),
        (
            "redlock_quorum_masters_granting",
            "Masters of the quorum whose votes count now, and that accept writes.",
            |_, all| all.iter().filter(|master| master.accepts_writes()).count(),
        ),
        (
            "redlock_quorum_masters_required",
            "Masters that are a majority of the quorum.",
            |source, _| source.masters.size().majority(),
        ),
    ];
    for (name, help, count) in families {
        text.family(name, "gauge", help);
        for (source, statuses) in sources.iter().zip(&statuses) {
            let quorum = labels(&[("quorum", &source.meter.name)]);
            text.sample(name, &quorum, count(source, statuses));
        }
    }

    let masters: Vec<Master<'_>> = sources.iter().zip(statuses).flat_map(masters_of).collect();
    of_each(text, &masters);
}

fn masters_of<'a>((source, statuses): (&Source<'a>, Vec<MasterStatus>)) -> Vec<Master<'a>> {
    let meter = source.meter;
    let one = |(index, status): (usize, MasterStatus)| Master {
        labels: labels(&[("quorum", &meter.name), ("master", &status.name)]),
        failure_domain: meter
            .masters
            .get(index)
            .and_then(|(_, domain)| domain.as_deref())
            .unwrap_or_default(),
        status,
    };
    statuses.into_iter().enumerate().map(one).collect()
}

fn of_each(text: &mut Text, masters: &[Master<'_>]) {
    let name = "redlock_master_up";
    text.family(name, "gauge", "Whether the master is connected and answers.");
    for master in masters {
        text.sample(name, &master.labels, u8::from(master.status.connected));
    }
    let name = "redlock_master_sealed";
    text.family(name, "gauge", "Whether the master's votes count.");
    for master in masters {
        text.sample(name, &master.labels, u8::from(master.status.votes()));
    }
    let name = "redlock_master_granting";
    text.family(
        name,
        "gauge",
        "Whether the master's votes count, and it accepts writes.",
    );
    for master in masters {
        text.sample(name, &master.labels, u8::from(master.status.accepts_writes()));
    }
    let name = "redlock_master_clock_offset_seconds";
    text.family(
        name,
        "gauge",
        "Clock of the master minus the clock of this process.",
    );
    for master in masters {
        if let Some(offset) = master.status.clock_offset_seconds {
            text.sample(name, &master.labels, offset);
        }
    }
    let name = "redlock_master_info";
    text.family(name, "gauge", "Role and configuration of the master; always 1.");
    for master in masters {
        // The facts of a master that is not connected may be outdated.
        if let Some(facts) = master.status.facts.as_ref().filter(|_| master.status.connected) {
            let more = info(facts, master.failure_domain);
            text.sample(name, &format!("{},{more}", master.labels), 1);
        }
    }
}

fn info(facts: &MasterFacts, failure_domain: &str) -> String {
    labels(&[
        ("role", &facts.role),
        ("server", facts.server.name()),
        ("version", facts.server.version()),
        ("persistence", if facts.aof { "aof" } else { "none" }),
        ("eviction_policy", &facts.eviction_policy),
        ("failure_domain", failure_domain),
    ])
}
