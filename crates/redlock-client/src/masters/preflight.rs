//! Runs the real scripts at a master on trial keys, and reports by name the first permission that the user
//! lacks.
//!
//! Touches no lease, no reservation and no register. The trial keys are under `<prefix>:doctor:` and are
//! deleted at the end; otherwise they expire soon after.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::Cmd;
use thiserror::Error;

use redlock_core::{
    Admission, ClusterId, Command, FencingToken, HolderIdentity, Keyspace, LeaseAttempt, LeaseStem, LockKeys,
    LockName, Mark, MasterFacts, Nonce, Reply, Unknown,
    command::Item,
    reply::Code,
    script::{self as scripts, Payload, Script},
};

use super::{
    Masters,
    link::{Link, Packed},
    permission, random,
};

/// The lifetime of the keys of a trial that was killed.
const LIFE: Duration = Duration::from_secs(60);
/// The floor of the trial, below the first grant number.
const FLOOR: u64 = 1;
const FINGERPRINT: &str = "trial";
/// A stall of the network or of this machine must not fail a healthy master: a trial that timed out is repeated.
const TRIES: usize = 3;

/// The first script that failed its trial.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{script}{}: {reason}", if commands.is_empty() { String::new() } else { format!(" ({commands})") })]
pub struct PreflightError {
    pub script: String,
    /// The commands on the line of the script at which the server stopped; its own message names only the line.
    pub commands: String,
    pub reason: Unknown,
}

impl Masters {
    /// Runs every script at every master. The result for a master that cannot be polled is the error of the
    /// poll.
    pub async fn try_scripts(&self) -> Vec<Result<(), PreflightError>> {
        let links = self.links().iter();
        join_all(links.map(|link| try_out(link, self.cluster()))).await
    }
}

/// Runs every script at one master.
pub(super) async fn try_out(link: &Link, cluster: &ClusterId) -> Result<(), PreflightError> {
    let mut end = try_once(link, cluster).await;
    for _ in 1..TRIES {
        match &end {
            Err(error) if error.reason.is_late() => end = try_once(link, cluster).await,
            _ => break,
        }
    }
    end
}

/// The greatest token.
const LATEST: &str = "9007199254740991";

async fn try_once(link: &Link, cluster: &ClusterId) -> Result<(), PreflightError> {
    let (holder, name) = (
        HolderIdentity::parse("doctor"),
        LockName::internal("doctor", "trial"),
    );
    let (Ok(holder), Ok(name)) = (holder, name) else {
        // Both texts are valid constants.
        return Ok(());
    };
    let nonce = random::bits();
    let keys = link.keys.scratch(&format!("{nonce:032x}"));
    let trial = Trial {
        link,
        lock: keys.lock(&name),
        keys,
        probe: format!("{nonce:032x}"),
        cluster: cluster.clone(),
        stem: LeaseStem::new(cluster, &holder, Nonce(nonce)),
    };
    trial.run().await
}

struct Trial<'a> {
    link: &'a Link,
    keys: Keyspace,
    lock: Arc<LockKeys>,
    cluster: ClusterId,
    stem: LeaseStem,
    probe: String,
}

impl Trial<'_> {
    async fn run(&self) -> Result<(), PreflightError> {
        let facts = self.link.read_facts().await.map_err(|reason| PreflightError {
            script: scripts::FACTS.name.to_lowercase(),
            commands: commands(&scripts::FACTS, &reason),
            reason,
        })?;
        let tried = self.try_all(&facts).await;
        let cleaned = self.end(Duration::ZERO).await;
        tried.and(cleaned)
    }

    async fn try_all(&self, facts: &MasterFacts) -> Result<(), PreflightError> {
        let probe = facts.probe_prefix() + &self.probe;
        let (meta, probe_key) = (&*self.keys.meta, &*self.keys.probe);
        let lock = [&*self.lock.lease, &*self.lock.reserved];

        self.call(&scripts::PROBE, &[meta, probe_key], &[&probe, "replace"])
            .await?;
        self.call(
            &scripts::TURN,
            &[meta, probe_key, &self.keys.turn],
            &[&probe, "doctor", "1000"],
        )
        .await?;
        self.call(
            &scripts::RESTORE,
            &[meta, probe_key, &self.keys.turn],
            &[&probe, "", "1", "doctor", "1000", "counter", "1"],
        )
        .await?;
        let sealed = self
            .call(
                &scripts::SEAL,
                &[meta, probe_key],
                &[&probe, FINGERPRINT, "1", "counter", "1"],
            )
            .await;
        match sealed {
            // A master with replicas gets no seal, and the other scripts need one. Its facts report the replicas.
            Err(error) if error.reason == refused(&Code::Other("replicas".into())) => return Ok(()),
            sealed => sealed?,
        }
        self.end(LIFE).await?;
        for item in self.items() {
            self.ask(item).await?;
        }
        let name = self.lock.name.as_str();
        self.call(&scripts::FENCE, &[meta, lock[0], lock[1]], &[FINGERPRINT, name])
            .await?;
        // The seal has deleted the probe: a lock without a lease and a reservation.
        self.call(
            &scripts::FORGET,
            &[meta, probe_key, probe_key],
            &[FINGERPRINT, name, LATEST, "held"],
        )
        .await?;
        self.read(&scripts::REGISTERS, &[meta], &["0", "10"]).await?;
        self.read(&scripts::INSPECT, &lock, &[]).await?;
        self.read(&scripts::SCAN, &[], &["0", &self.keys.pattern("*"), "10"])
            .await?;
        self.call(
            &scripts::RETIRE,
            &[meta, probe_key],
            &[&facts.run_id, FINGERPRINT, ""],
        )
        .await?;
        let subscribed = self.link.subscribe().await;
        subscribed.map_err(|reason| PreflightError {
            script: "subscribe".into(),
            commands: String::new(),
            reason,
        })
    }

    /// Returns the commands of a lease's life, in order.
    fn items(&self) -> Vec<Item> {
        let attempt = Arc::new(LeaseAttempt::new(self.stem.clone(), LIFE));
        let acquire = Command::Acquire {
            attempt: attempt.clone(),
            lease_duration: LIFE,
        };
        // The grant number is the one that follows the floor.
        let (number, token) = (FLOOR + 1, FencingToken(FLOOR + 1));
        let confirm = Item::Confirm {
            attempt: attempt.clone(),
            token,
            granted: vec![(self.link.index, number)],
        };
        let commands = [
            Command::Renew {
                attempt: attempt.clone(),
                token,
                lease_duration: LIFE,
            },
            Command::Mark {
                attempt: attempt.clone(),
                token,
                mark: Mark::Held { delay: LIFE },
            },
            Command::Claim {
                object: "trial".into(),
                slot: 1,
                job: "trial".into(),
            },
            Command::Reserve {
                attempt: attempt.clone(),
                cluster: self.cluster.clone(),
            },
            acquire.clone(),
            Command::Release { attempt },
            Command::Break { longest_lease: LIFE },
        ];
        let first = [Item::Command(acquire), confirm];
        first.into_iter().chain(commands.map(Item::Command)).collect()
    }

    async fn ask(&self, item: Item) -> Result<(), PreflightError> {
        let payload = Payload {
            operation: item.operation(),
            items: Arc::new([(self.lock.clone(), item)]),
            keys: self.keys.clone(),
            cluster: self.cluster.to_string().into(),
            floor: FLOOR,
        };
        self.exchange(payload.script(), |command, not_after| {
            payload.write(
                &mut Packed(command),
                not_after,
                FINGERPRINT,
                self.link.index,
                &[0],
            );
        })
        .await
    }

    /// Deletes the trial's keys, or lets them expire.
    async fn end(&self, after: Duration) -> Result<(), PreflightError> {
        let keys = [
            &*self.keys.meta,
            &*self.keys.probe,
            &*self.keys.turn,
            &*self.lock.lease,
            &*self.lock.reserved,
        ];
        self.read(&scripts::SCRATCH, &keys, &[&after.as_millis().to_string()])
            .await
    }

    /// Runs a script whose first argument is `not_after`.
    async fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(), PreflightError> {
        self.exchange(script, |command, not_after| {
            command.arg(keys.len()).arg(keys).arg(not_after).arg(args);
        })
        .await
    }

    async fn read(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(), PreflightError> {
        self.exchange(script, |command, _| {
            command.arg(keys.len()).arg(keys).arg(args);
        })
        .await
    }

    async fn exchange(
        &self,
        script: &'static Script,
        fill: impl Fn(&mut Cmd, u64),
    ) -> Result<(), PreflightError> {
        let deadline = self.link.command_timeout();
        let exchange = self.link.call(script, Admission::Connected, deadline, fill).await;
        let done = exchange.reply.and_then(done);
        done.map_err(|reason| PreflightError {
            script: script.name.to_lowercase(),
            commands: commands(script, &reason),
            reason,
        })
    }
}

/// Returns the commands on the line of the script at which the server stopped.
fn commands(script: &Script, reason: &Unknown) -> String {
    match reason {
        Unknown::Server { detail, .. } => permission::commands(script, detail).join(", "),
        _ => String::new(),
    }
}

fn done(reply: Reply) -> Result<(), Unknown> {
    match reply.code {
        Code::Ok => Ok(()),
        code => Err(refused(&code)),
    }
}

fn refused(code: &Code) -> Unknown {
    Unknown::Reply(format!("the script returned {code:?}"))
}
