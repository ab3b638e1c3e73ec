//! Follows one life of a replica through its log and its answers to `/locks`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{ReplicaView, Shared, lock};
use crate::claims::Incarnation;
use crate::http::Client;
use crate::journal::{Event, Journal, Line};
use redlock_client::clock;
use redlock_core::BootInstant;

/// The resolution at which a replica that logs *lost* too late is detected; the log itself has microseconds.
const EVERY: Duration = Duration::from_millis(10);
/// A paused replica does not answer. A short bound makes the next question reach it soon after it wakes, when its
/// belief could be wrong.
const PATIENCE: Duration = Duration::from_millis(60);
/// The number of questions between two questions about readiness.
const READY_EVERY: u64 = 8;
/// The delay between the time from which `valid_ms` counts and the time in the log line.
const LOG_DELAY: Duration = Duration::from_millis(1);

#[derive(Debug, Deserialize)]
struct Locks {
    locks: Vec<LockLine>,
}

/// The fields of `/locks` that show the belief of a replica.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockLine {
    lock_name: String,
    role: String,
    fencing_token: Option<u64>,
    valid_for_milliseconds: Option<u64>,
    quorum: Option<String>,
}

#[derive(Debug)]
pub(super) struct Follower {
    who: Incarnation,
    client: Client,
    journal: Journal,
    record: Shared,
}

impl Follower {
    pub(super) async fn open(
        who: Incarnation,
        address: SocketAddr,
        log: &Path,
        record: Shared,
    ) -> io::Result<Self> {
        let journal = Journal::open(log).await?;
        lock(&record).replicas.push(ReplicaView {
            who: who.clone(),
            ready: false,
            answers: false,
            quorum: None,
            lines: Vec::new(),
            answered: 0,
        });
        Ok(Self {
            who,
            client: Client::new(address),
            journal,
            record,
        })
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut round = 0;
        while !stop.is_cancelled() {
            ticks.tick().await;
            self.read_log().await;
            self.ask_locks().await;
            if round % READY_EVERY == 0 {
                self.ask_ready().await;
            }
            round += 1;
        }
        self.read_log().await;
        self.view(|view| (view.answers, view.ready) = (false, false));
    }

    fn view(&self, change: impl FnOnce(&mut ReplicaView)) {
        if let Some(view) = lock(&self.record).replica_mut(&self.who) {
            change(view);
        }
    }

    async fn read_log(&mut self) {
        // An unreadable log shows in the record: the events of its replica are missing.
        let Ok(lines) = self.journal.news().await else {
            return;
        };
        if lines.is_empty() {
            return;
        }
        let mut record = lock(&self.record);
        for Line { at, event } in &lines {
            match event {
                Event::Acquired { lock, token, valid } => {
                    let valid_until = *at + valid.saturating_sub(LOG_DELAY);
                    record.claims.acquired(&self.who, lock, *token, *at, valid_until);
                }
                Event::Lost { lock, token } | Event::GivenUp { lock, token } => {
                    record.claims.ended(&self.who, lock, *token, *at);
                }
                Event::Other { .. } => {}
            }
        }
        if let Some(view) = record.replica_mut(&self.who) {
            view.lines.extend(lines);
        }
    }

    async fn ask_locks(&mut self) {
        let asked = clock::now();
        let answer = timeout(PATIENCE, self.client.get("/locks")).await;
        let received = clock::now();
        let locks: Option<Locks> = match answer {
            Ok(Ok(answer)) => serde_json::from_slice(&answer.body).ok(),
            _ => None,
        };
        match locks {
            Some(Locks { locks }) => self.record_locks(&locks, asked, received),
            None => self.view(|view| view.answers = false),
        }
    }

    /// The replica computed the remaining time after the question was sent, so counting from `asked` gives a lower
    /// bound.
    fn record_locks(&self, locks: &[LockLine], asked: BootInstant, received: BootInstant) {
        let mut record = lock(&self.record);
        for line in locks {
            let left = line.valid_for_milliseconds.filter(|left| *left > 0);
            if let ("active", Some(token), Some(left)) =
                (line.role.to_ascii_lowercase().as_str(), line.fencing_token, left)
            {
                let valid_until = asked + Duration::from_millis(left);
                record
                    .claims
                    .answered(&self.who, &line.lock_name, token, (asked, received), valid_until);
            }
        }
        if let Some(view) = record.replica_mut(&self.who) {
            view.answers = true;
            view.answered += 1;
            view.quorum = locks.iter().find_map(|line| line.quorum.clone());
        }
    }

    async fn ask_ready(&mut self) {
        let answer = timeout(PATIENCE, self.client.get("/readyz")).await;
        let ready = matches!(answer, Ok(Ok(answer)) if answer.status == 200);
        self.view(|view| view.ready = ready);
    }
}
