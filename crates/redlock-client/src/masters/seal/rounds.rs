//! Implements the exchanges of the seal: read all masters, write a probe, read registers, seal.
//!
//! Decides nothing. Each exchange has its own deadline, and all masters are asked at the same time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use thiserror::Error;

use redlock_core::{
    Admission, BootInstant, Fingerprint, QuorumId, Reply, Unknown, quorum_id,
    reply::{self, Code},
    script::{PROBE, REGISTERS, RESTORE, SCAN, SEAL, Script, TURN},
    seal::{Account, AccountReader, AfterPage, Read, Registers, Response},
};

use crate::{
    clock,
    masters::{link::Link, random},
};

/// Number of keys read in one step of a scan, which takes some milliseconds of a busy server.
const SCAN_COUNT: u32 = 1_000;
/// The least time that masters get whose registers are not needed.
const LATE: Duration = Duration::from_millis(500);
/// The registers that one call reads, and those that one writes: less than 5 ms of the server.
const READ_PAGE: usize = 500;
const WRITTEN_PAGE: usize = 1_000;

/// The reason why a master without a seal did not carry out a step.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotDone {
    #[error("the server restarted, or was promoted, meanwhile")]
    Restarted,
    #[error("the server is already sealed")]
    Sealed,
    #[error("the probe was overwritten: another process seals or initialises the server")]
    ProbeChanged,
    #[error("the server was retired: another server is this master now")]
    Retired,
    #[error(
        "the registers of the server were deleted, or restored by another process, while this process restored them; \
         sealing is retried"
    )]
    Disturbed,
    #[error("a replica is attached to the server and may be promoted in its place; detach the replica")]
    HasReplicas,
    #[error(
        "the server reports no replication id of 40 hex digits, so a promotion is not detected; use Redis 6.2, Valkey \
         7.2 or newer"
    )]
    NoReplicationId,
    /// The masters of a quorum that has no id yet are sealed in turn.
    #[error(
        "the masters are sealed one after the other, and the seal of an earlier one failed; sealing is retried"
    )]
    OutOfTurn,
    #[error(
        "register {register} of master {master} holds {value}, which is not plausible; delete <key prefix>:meta on that \
         master, so that its registers are restored from the others"
    )]
    ImplausibleSource {
        master: String,
        register: String,
        value: u64,
    },
    #[error("another process restores the registers of the server")]
    OtherTurn,
    #[error("the server is in use: its registers exist")]
    Used,
    #[error("the server did not confirm the step: {0}")]
    Unknown(#[from] Unknown),
}

/// Whether a probe of this run of the server may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probing {
    Keep,
    /// Used by `init`, for a master that has only a probe.
    Replace,
    /// As `Replace`, but a probe that differs in its last part alone stays: that of another `init` under the same
    /// fingerprint. Two replicas do not disturb each other.
    Begin,
}

pub(super) fn uuid() -> String {
    format!("{:032x}", random::timed_bits())
}

/// Reads all masters at the same time.
pub(super) async fn read_all(links: &[Arc<Link>]) -> Read {
    let sent = clock::now();
    let responses = links.iter().map(|link| async {
        let facts = link.read_facts().await.ok()?;
        let received = clock::now();
        Some(Response { facts, received })
    });
    Read {
        sent,
        responses: join_all(responses).await,
    }
}

/// Writes a probe. Returns the probe that the master carries afterwards, and the time of the answer.
pub(super) async fn write_probe(
    link: &Link,
    probe: &str,
    probing: Probing,
    deadline: Duration,
) -> Result<(String, BootInstant), NotDone> {
    let exchange = link
        .call(&PROBE, Admission::Connected, deadline, |command, not_after| {
            command.arg(2).arg(&*link.keys.meta).arg(&*link.keys.probe);
            command.arg(not_after).arg(probe);
            match probing {
                Probing::Keep => command.arg("keep"),
                Probing::Replace => command.arg("replace"),
                Probing::Begin => command.arg("replace").arg(beginning(probe)),
            };
        })
        .await;
    let reply = done(exchange.reply)?;
    let [standing] = &reply.items[..] else {
        return Err(Unknown::Reply(format!("the probe returned {} fields", reply.items.len())).into());
    };
    Ok((reply::text(standing)?.to_owned(), exchange.received))
}

/// Takes the turn to seal a master, or returns the process whose turn lasts.
pub(super) async fn take_turn(link: &Link, probe: &str, turn: &SealTurn) -> Result<String, NotDone> {
    let deadline = link.command_timeout();
    let exchange = link
        .call(&TURN, Admission::Connected, deadline, |command, not_after| {
            let keys = [&link.keys.meta, &link.keys.probe, &link.keys.turn];
            command.arg(keys.len());
            for key in keys {
                command.arg(&**key);
            }
            command.arg(not_after).arg(probe).arg(&turn.process);
            command.arg(turn.lasts.as_millis().to_string());
        })
        .await;
    let reply = done(exchange.reply)?;
    let [turn] = &reply.items[..] else {
        return Err(Unknown::Reply(format!("the turn returned {} fields", reply.items.len())).into());
    };
    Ok(reply::text(turn)?.to_owned())
}

/// Returns a probe without its last part, which differs in each attempt.
fn beginning(probe: &str) -> &str {
    let last = probe.rfind('|').map_or(0, |last| last + 1);
    &probe[..last]
}

/// The turn of a process to restore registers, which each page extends.
#[derive(Clone, Debug)]
pub(super) struct SealTurn {
    pub(super) process: String,
    pub(super) lasts: Duration,
}

impl SealTurn {
    /// `limit` is that of one call.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            process: uuid(),
            lasts: limit * 2 + Duration::from_secs(1),
        }
    }
}

/// Restores the floor page by page, and seals with the last page (P-72). `deadline` is that of each call.
pub(super) async fn seal(
    link: &Link,
    probe: &str,
    floor: &Registers,
    (quorum, turn): (&QuorumId, &SealTurn),
    deadline: Duration,
) -> Result<(), NotDone> {
    let fields: Vec<(&str, String)> = floor.fields().collect();
    let mut pages = fields.chunks(WRITTEN_PAGE);
    let last = pages.next_back().unwrap_or_default();
    let mut restored = RestoredPage::default();
    for page in pages {
        let (before, next) = (restored.text(), restored.next());
        let exchange = link
            .call(&RESTORE, Admission::Connected, deadline, |command, not_after| {
                command
                    .arg(3)
                    .arg(&*link.keys.meta)
                    .arg(&*link.keys.probe)
                    .arg(&*link.keys.turn);
                command.arg(not_after).arg(probe);
                command.arg(&before).arg(next.text()).arg(&turn.process);
                command.arg(turn.lasts.as_millis().to_string());
                write_fields(command, page);
            })
            .await;
        done(exchange.reply)?;
        restored = next;
    }
    let stamp = quorum_id::stamp(&link.fingerprint(), quorum);
    let exchange = link
        .call(&SEAL, Admission::Connected, deadline, |command, not_after| {
            command.arg(2).arg(&*link.keys.meta).arg(&*link.keys.probe);
            command.arg(not_after).arg(probe).arg(&stamp).arg(restored.text());
            write_fields(command, last);
        })
        .await;
    done(exchange.reply)?;
    // The master votes after its next poll.
    link.poke();
    Ok(())
}

/// The number of pages that were restored, and the process that restored them. An earlier version reads it as a number, and
/// copies it to other masters, where it has no meaning.
#[derive(Clone, Copy, Debug, Default)]
struct RestoredPage {
    process: u32,
    pages: u32,
}

impl RestoredPage {
    fn next(self) -> Self {
        match self.pages {
            0 => Self {
                process: u32::try_from(random::bits() >> 96).unwrap_or_default(),
                pages: 1,
            },
            pages => Self {
                pages: pages + 1,
                ..self
            },
        }
    }

    /// Returns the value of the field `restored`; an empty text before the first page.
    fn text(self) -> String {
        match self.pages {
            0 => String::new(),
            pages => ((u64::from(self.process) << 20) + u64::from(pages)).to_string(),
        }
    }
}

fn write_fields(command: &mut redis::Cmd, fields: &[(&str, String)]) {
    for (field, value) in fields {
        command.arg(*field).arg(value);
    }
}

pub(super) fn done(reply: Result<Reply, Unknown>) -> Result<Reply, NotDone> {
    let reply = reply?;
    let Code::Other(code) = &reply.code else {
        return Ok(reply);
    };
    Err(match code.as_str() {
        "restarted" => NotDone::Restarted,
        "sealed" => NotDone::Sealed,
        "probe" => NotDone::ProbeChanged,
        "used" => NotDone::Used,
        "replicas" => NotDone::HasReplicas,
        "replication" => NotDone::NoReplicationId,
        "retired" => NotDone::Retired,
        "disturbed" => NotDone::Disturbed,
        "turn" => NotDone::OtherTurn,
        other => NotDone::Unknown(Unknown::Reply(format!("code {other:?}"))),
    })
}

/// The bounds of a read of all registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// The time for one page.
    pub(super) page: Duration,
    /// The time for all pages: shorter than the wait in which a master that loses its memory meanwhile has no seal.
    pub(super) all: Duration,
}

impl ReadLimits {
    pub(super) fn of(fingerprint: &Fingerprint) -> Self {
        Self {
            page: fingerprint.acquire_limit(),
            all: fingerprint.seal_wait() / 2,
        }
    }
}

/// Reads one master's registers, whether it is sealed or not.
pub(super) async fn account(link: &Link, limits: ReadLimits) -> Result<Account, Unknown> {
    let until = clock::now() + limits.all;
    let (mut cursor, mut reader) = (AccountReader::FIRST, AccountReader::default());
    loop {
        let fill = |command: &mut redis::Cmd, _| {
            command.arg(1).arg(&*link.keys.meta).arg(cursor).arg(READ_PAGE);
        };
        let reply = read(link, &REGISTERS, limits.page, fill).await?;
        if clock::now() > until {
            let text = format!(
                "the registers could not be read within {} s",
                limits.all.as_secs()
            );
            return Err(Unknown::Reply(text));
        }
        match reader.add_page(&reply.items)? {
            AfterPage::End(account) => return Ok(account),
            AfterPage::Page {
                cursor: next,
                reader: rest,
            } => (cursor, reader) = (next, rest),
        }
    }
}

/// Reads the registers of these masters at the same time; returns those that answered. Once `enough` have, the others get as
/// much time again: a master that returns pages without an end does not delay a seal for long.
pub(super) async fn accounts(
    links: &[Arc<Link>],
    of: &[usize],
    enough: usize,
    limits: ReadLimits,
) -> BTreeMap<usize, Account> {
    let asked = of.iter().filter_map(|master| links.get(*master));
    let mut reads: FuturesUnordered<_> = asked
        .map(|link| async { (link.index, account(link, limits).await) })
        .collect();
    let (started, mut read) = (clock::now(), BTreeMap::new());
    let mut until: Option<BootInstant> = None;
    loop {
        let next = match until {
            None => reads.next().await,
            Some(until) => tokio::time::timeout(until.left(clock::now()), reads.next())
                .await
                .ok()
                .flatten(),
        };
        let Some((master, account)) = next else {
            return read;
        };
        if let Ok(account) = account {
            read.insert(master, account);
        }
        if read.len() == enough {
            let now = clock::now();
            until = Some(now + now.since(started).max(LATE));
        }
    }
}

/// Returns a key under the prefix other than the probe, if there is one. `until` bounds the walk through a large
/// server.
pub(super) async fn foreign_key(link: &Link, until: BootInstant) -> Result<Option<String>, Unknown> {
    let pattern = link.keys.pattern("*");
    let mut cursor = "0".to_owned();
    loop {
        if clock::now() > until {
            return Err(Unknown::Reply("too many keys to read in time".into()));
        }
        let fill = |command: &mut redis::Cmd, _| {
            command.arg(0).arg(&cursor).arg(&pattern).arg(SCAN_COUNT);
        };
        let reply = read(link, &SCAN, until.left(clock::now()), fill).await?;
        let [next, keys @ ..] = &reply.items[..] else {
            return Err(Unknown::Reply("the scan returned no cursor".into()));
        };
        for key in keys {
            // A key that is not text is foreign, but still under the prefix.
            let key = reply::text(key).unwrap_or("(not text)");
            if key != &*link.keys.probe && key != &*link.keys.turn {
                return Ok(Some(key.to_owned()));
            }
        }
        let next = reply::text(next)?.to_owned();
        if next == "0" {
            return Ok(None);
        }
        cursor = next;
    }
}

async fn read(
    link: &Link,
    script: &'static Script,
    deadline: Duration,
    fill: impl Fn(&mut redis::Cmd, u64),
) -> Result<Reply, Unknown> {
    let reply = link
        .call(script, Admission::Connected, deadline, fill)
        .await
        .reply?;
    match reply.code {
        Code::Ok => Ok(reply),
        code => Err(Unknown::Reply(format!("{} returned {code:?}", script.name))),
    }
}
