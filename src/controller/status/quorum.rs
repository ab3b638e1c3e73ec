//! Computes the status of a quorum.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    condition::{ConditionType, Conditions, Truth, cut, cut_to},
    progress::Progress,
    replicas,
};
use crate::{
    api::quorum_status::{MasterStatus as Shown, NotReadyReplica, RedisQuorumStatus, ReporterStatus},
    controller::problem::{Problem, Reason},
    masters::{Ineligible, MasterStatus, Refusal, Server, Unknown},
};

/// The message of a quorum of one master.
const ONE_MASTER: &str = "one master grants every lease: no lock is held while it is away, and after each restart none for \
                          the wait of its seal; see docs/single-master.md";
/// The longest word of a server that a status shows.
const WORD: usize = 64;

/// The health of a quorum's masters, as far as conditions show it. A status is written when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Health {
    pub(in crate::controller) voting: usize,
    pub(in crate::controller) masters: usize,
    /// The masters that vote and accept writes.
    granting: usize,
    /// The masters without a vote, by name.
    missing: Vec<(String, Cause)>,
    /// The masters that vote but refuse the new credentials or certificates, a script, or all writes.
    hindered: Vec<(String, Cause)>,
    /// The masters whose configuration may lose leases.
    unsafe_masters: Vec<(String, String)>,
}

/// The reason why a master has no vote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause {
    reason: Reason,
    text: String,
}

impl Health {
    pub(in crate::controller) fn of(status: &[MasterStatus]) -> Self {
        let missing = status.iter().filter(|master| !master.votes());
        let unfit = status.iter().filter_map(|master| {
            let unfit = master.ineligible.as_ref().filter(|unfit| is_unsafe(unfit))?;
            Some((master.name.clone(), unfit.to_string()))
        });
        let hindered = status
            .iter()
            .filter(|master| master.votes())
            .filter_map(|master| Some((master.name.clone(), hindrance(master)?)));
        Self {
            hindered: hindered.collect(),
            voting: status.iter().filter(|master| master.votes()).count(),
            granting: status.iter().filter(|master| master.accepts_writes()).count(),
            masters: status.len(),
            missing: missing
                .map(|master| (master.name.clone(), cause(master)))
                .collect(),
            unsafe_masters: unfit.collect(),
        }
    }

    #[cfg(test)]
    pub(in crate::controller) fn sample(voting: usize, masters: usize) -> Self {
        let silent = |name| {
            let (reason, text) = (Reason::Silent, "no answer".to_owned());
            (format!("m{name}"), Cause { reason, text })
        };
        Self {
            voting,
            granting: voting,
            masters,
            missing: (voting..masters).map(silent).collect(),
            hindered: Vec::new(),
            unsafe_masters: Vec::new(),
        }
    }

    /// Reports whether a majority of the masters votes and accepts writes.
    pub(in crate::controller) fn has_majority(&self) -> bool {
        self.masters > 0 && self.granting > self.masters / 2
    }

    /// Reports whether a majority votes, whether or not it accepts writes.
    pub(in crate::controller) fn votes_by_majority(&self) -> bool {
        self.masters > 0 && self.voting > self.masters / 2
    }

    /// Returns the reason why there is no majority; `None` if there is one.
    pub(in crate::controller) fn no_majority(&self) -> Option<String> {
        (!self.has_majority()).then(|| {
            let needed = self.masters / 2 + 1;
            format!("{}, {needed} are needed ({})", self.votes(), self.list())
        })
    }

    /// Returns the same reason for the status of a lock. The text contains neither the number of votes nor a
    /// cause: every change of these would cost a write for every lock.
    pub(in crate::controller) fn no_majority_of(&self, quorum: &str) -> Option<Problem> {
        let (masters, needed) = (self.masters, self.masters / 2 + 1);
        let (reason, action) = match (self.votes_by_majority(), self.has_majority()) {
            (_, true) => return None,
            (true, false) => (Reason::WritesRefused, "accept writes"),
            (false, false) => (Reason::NoMajority, "vote"),
        };
        let text = format!(
            "fewer than {needed} of {masters} masters {action}; see the status of RedisQuorum {quorum}"
        );
        Some(Problem::new(reason, text))
    }

    fn votes(&self) -> String {
        let votes = format!("{} of {} masters vote", self.voting, self.masters);
        match self.voting - self.granting {
            0 => votes,
            refuse => format!("{votes}, {refuse} of them refuse writes"),
        }
    }

    fn list(&self) -> String {
        let troubled = self.missing.iter().chain(&self.hindered);
        let texts: Vec<String> = troubled
            .map(|(name, cause)| format!("{name}: {}", cause.text))
            .collect();
        texts.join(", ")
    }

    /// Returns the names of the masters in quarantine: they answer but are not sealed.
    pub(in crate::controller) fn quarantined(&self) -> impl Iterator<Item = &str> {
        let sealing = self
            .missing
            .iter()
            .filter(|(_, cause)| cause.reason == Reason::Sealing);
        sealing.map(|(name, _)| name.as_str())
    }

    /// Returns the most frequent cause among the masters without a vote, or else among the hindered masters.
    fn reason(&self) -> Reason {
        let troubled = if self.missing.is_empty() {
            &self.hindered
        } else {
            &self.missing
        };
        let causes = || troubled.iter().map(|(_, cause)| cause.reason);
        causes()
            .max_by_key(|reason| causes().filter(|other| other == reason).count())
            .unwrap_or(Reason::NoMajority)
    }
}

/// Returns the problem of a master that votes.
fn hindrance(master: &MasterStatus) -> Option<Cause> {
    let refused = master.refusal().map(refusal_cause);
    refused.or_else(|| master.not_renewed.as_ref().map(renewal_cause))
}

fn refusal_cause(refusal: &Unknown) -> Cause {
    let (reason, text) = match refusal.is_refused_write() {
        true => (Reason::WritesRefused, format!("refuses writes: {refusal}")),
        false => (Reason::CredentialsRefused, refusal.to_string()),
    };
    Cause { reason, text }
}

fn renewal_cause(refusal: &Unknown) -> Cause {
    let reason = if refusal.is_auth() {
        Reason::CredentialsRefused
    } else {
        Reason::NotRenewed
    };
    Cause {
        reason,
        text: format!(
            "the server does not accept the present content of the Secret ({refusal}); the connection with the \
             previous content is kept"
        ),
    }
}

fn is_unsafe(unfit: &Ineligible) -> bool {
    matches!(
        unfit,
        Ineligible::Replica(_)
            | Ineligible::HasReplicas(_)
            | Ineligible::ClusterMode
            | Ineligible::Retired(_)
            | Ineligible::Duplicate
            | Ineligible::OtherFingerprint { .. }
            | Ineligible::OtherQuorum { .. }
            | Ineligible::EvictionPolicy(_)
            | Ineligible::Evicted(_)
            | Ineligible::Server(_)
            | Ineligible::NoRunId(_)
            | Ineligible::NoReplicationId(_)
    )
}

fn cause(master: &MasterStatus) -> Cause {
    let cause = |reason, text: String| Cause { reason, text };
    if !master.connected {
        return match &master.trouble {
            Some(trouble) if trouble.is_auth() => cause(Reason::CredentialsRefused, trouble.to_string()),
            Some(trouble) => cause(Reason::Unreachable, trouble.to_string()),
            None => cause(Reason::Connecting, "not connected yet".into()),
        };
    }
    if let Some(unfit) = &master.ineligible {
        let reason = match unfit {
            Ineligible::Server(Refusal::TooOld(_)) => Reason::ServerTooOld,
            Ineligible::Server(_) | Ineligible::NoRunId(_) | Ineligible::NoReplicationId(_) => {
                Reason::ServerUnsupported
            }
            Ineligible::Replica(_) => Reason::IsReplica,
            Ineligible::HasReplicas(_) => Reason::HasReplicas,
            Ineligible::ClusterMode => Reason::ClusterMode,
            Ineligible::Retired(_) => Reason::Retired,
            Ineligible::Duplicate => Reason::SameServer,
            Ineligible::OtherFingerprint { .. } => Reason::OtherFingerprint,
            Ineligible::OtherQuorum { .. } => Reason::OtherQuorum,
            Ineligible::CounterAhead { .. } => Reason::CounterAhead,
            Ineligible::EvictionPolicy(_) => Reason::EvictionPolicy,
            Ineligible::Evicted(_) => Reason::Evicted,
            Ineligible::ClockStep(_) => {
                return cause(Reason::ClockStep, "the clock of the server stepped".into());
            }
        };
        return cause(reason, unfit.to_string());
    }
    // Checked before the seal, which may wait for this very permission.
    if let Some(refusal) = &master.not_permitted {
        return refusal_cause(refusal);
    }
    if let Some(blocked) = &master.seal_blocked {
        return cause(Reason::SealBlocked, format!("cannot be sealed: {blocked}"));
    }
    if master.sealing_left.is_some() {
        return cause(Reason::Sealing, "sealing".into());
    }
    match &master.no_vote {
        Some(unknown) if unknown.is_auth() => cause(Reason::CredentialsRefused, unknown.to_string()),
        Some(unknown) => cause(Reason::Silent, unknown.to_string()),
        None => cause(Reason::Connecting, String::new()),
    }
}

/// The facts of a status.
#[derive(Debug)]
pub(in crate::controller) struct QuorumFacts<'a> {
    pub(in crate::controller) before: &'a RedisQuorumStatus,
    pub(in crate::controller) generation: i64,
    /// The reason why the present spec is not in use.
    pub(in crate::controller) problem: Option<&'a Problem>,
    /// The health of a running quorum.
    pub(in crate::controller) health: Option<&'a Health>,
    pub(in crate::controller) masters: &'a [MasterStatus],
    /// The id of the quorum, once this process knows it.
    pub(in crate::controller) quorum_id: Option<String>,
    pub(in crate::controller) reporters: Vec<ReporterStatus>,
    pub(in crate::controller) not_ready: Vec<NotReadyReplica>,
    /// The ready replicas of this cluster that do not answer this one; `None` before they were asked.
    pub(in crate::controller) unanswered: Option<Vec<String>>,
    pub(in crate::controller) initialized: Option<Time>,
    /// The reason why the object still exists although it is being deleted.
    pub(in crate::controller) kept_by: Option<String>,
    pub(in crate::controller) now: Timestamp,
}

/// Returns the complete status.
pub(in crate::controller) fn quorum_status(facts: &QuorumFacts<'_>) -> RedisQuorumStatus {
    let before = facts.before;
    let mut conditions = Conditions::new(&before.conditions, facts.generation, facts.now);
    let progress = progress(facts);
    progress.ready(&mut conditions);
    match facts.health {
        None => {
            let reason = facts.problem.map_or(Reason::Opening, |problem| problem.reason);
            conditions.set(
                ConditionType::Degraded,
                Truth::Unknown,
                reason,
                "see Ready".into(),
            );
            conditions.set(ConditionType::Safe, Truth::Unknown, reason, "see Ready".into());
        }
        Some(health) => running(health, &mut conditions),
    }
    progress.abnormal(&mut conditions);
    replicas::ready(&facts.not_ready, &mut conditions);
    replicas::siblings(facts.unanswered.as_deref(), &mut conditions);
    if let Some(kept_by) = &facts.kept_by {
        conditions.set(ConditionType::Terminating, true, Reason::InUse, kept_by.clone());
    }
    RedisQuorumStatus {
        observed_generation: Some(facts.generation),
        votes: facts
            .health
            .map(|health| format!("{}/{}", health.voting, health.masters)),
        quorum_id: facts.quorum_id.clone().or_else(|| before.quorum_id.clone()),
        masters: if facts.masters.is_empty() {
            before.masters.clone()
        } else {
            facts.masters.iter().map(shown).collect()
        },
        reporters: facts.reporters.clone(),
        not_ready_replicas: facts.not_ready.clone(),
        initialized_time: before
            .initialized_time
            .clone()
            .or_else(|| facts.initialized.clone()),
        conditions: conditions.into_list(),
    }
}

fn running(health: &Health, conditions: &mut Conditions<'_>) {
    let votes = health.votes();
    if health.missing.is_empty() && health.hindered.is_empty() {
        conditions.set(ConditionType::Degraded, false, Reason::AllVote, votes);
    } else {
        let text = format!("{votes} ({})", health.list());
        conditions.set(ConditionType::Degraded, true, health.reason(), text);
    }
    if health.unsafe_masters.is_empty() {
        let text = "no master is configured in a way that can lose leases".to_owned();
        conditions.set(ConditionType::Safe, true, Reason::Fit, text);
    } else {
        let texts: Vec<String> = health
            .unsafe_masters
            .iter()
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        conditions.set(ConditionType::Safe, false, Reason::Unfit, texts.join("; "));
    }
    // The number of masters never changes.
    if health.masters == 1 {
        conditions.set(
            ConditionType::SingleMaster,
            true,
            Reason::OneMaster,
            ONE_MASTER.into(),
        );
    }
}

/// Returns the progress of the object.
fn progress(facts: &QuorumFacts<'_>) -> Progress {
    match (facts.problem, facts.health) {
        // The previous spec stays in force: it works, but is not the desired one.
        (Some(problem), health) => {
            let lost = health.and_then(Health::no_majority);
            let messages: Vec<String> = [problem.message.clone()].into_iter().chain(lost).collect();
            let stuck = problem.reason.is_of_the_object();
            Progress::problem(stuck, problem.reason, messages.join("; "))
        }
        (None, None) => Progress::in_progress(Reason::Opening, "being opened"),
        (None, Some(health)) => match health.no_majority() {
            Some(why) => Progress::in_progress(health.reason(), why),
            None => Progress::current(Reason::MajorityVotes, health.votes()),
        },
    }
}

/// Returns a word that a server reports about itself, within the bound of the definition.
fn word(text: &str) -> String {
    cut_to(text.to_owned(), WORD)
}

fn shown(master: &MasterStatus) -> Shown {
    let facts = master.facts.as_ref();
    let known = facts
        .map(|facts| &facts.server)
        .filter(|server| **server != Server::Unknown);
    // A server program that is refused because of its name alone has reported nothing else.
    let reported = facts.filter(|facts| !facts.role.is_empty());
    let left = master.sealing_left.filter(|_| master.seal_blocked.is_none());
    Shown {
        name: master.name.clone(),
        reachable: master.connected,
        sealed: facts.is_some_and(crate::masters::MasterFacts::sealed),
        sealed_in_seconds: left
            .map(|left| i64::try_from(left.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)),
        role: reported.map(|facts| word(&facts.role)),
        server: known.map(|server| word(server.name())),
        version: known.map(|server| word(server.version())),
        persistence: reported.map(|facts| if facts.aof { "aof" } else { "none" }.to_owned()),
        eviction_policy: reported.map(|facts| word(&facts.eviction_policy)),
        latency_microseconds: i64::try_from(master.latency.as_micros())
            .ok()
            .filter(|us| *us > 0),
        message: if master.votes() {
            hindrance(master).map(|cause| cut(cause.text))
        } else {
            Some(cut(cause(master).text))
        },
        url: Some(master.url.clone()),
    }
}
