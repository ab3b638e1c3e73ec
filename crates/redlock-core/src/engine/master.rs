//! Tracks the state of one master, and decides whether it may be asked.

use std::time::Duration;

use super::{ConnectionId, Engine, Output};
use crate::{BootInstant, Ineligible, MasterFacts, Unknown, eligibility, planted::Plant};

/// The interval of polls: a step of the master's clock and a lost seal show within a second.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The interval while no lock is held or contended for, and the master could vote at the last poll. The script of each
/// request checks the seal, the quorum and the clock itself.
const POLL_UNUSED_EVERY: Duration = Duration::from_secs(5);
/// The time by which the next poll may be late before the facts no longer give a vote.
const POLL_LATE: Duration = Duration::from_secs(2);

/// The state described in the module. By default, the master was never connected.
#[derive(Debug, Default)]
pub(super) struct Master {
    connected: bool,
    /// The number of the last connection.
    connection: ConnectionId,
    /// The number of servers that were this master before.
    pub(super) server: u32,
    /// The text that the server behind the present url showed when it was retired.
    retired: Option<String>,
    /// The facts that were read on the present connection.
    pub(super) facts: Option<MasterFacts>,
    /// Whether the server counts among those of this quorum: it was polled, and its connection stands.
    listed: bool,
    /// The time until which the facts give a vote.
    facts_until: BootInstant,
    /// The time from one poll to the next.
    poll_after: Duration,
    connected_at: BootInstant,
    ineligible: Option<Ineligible>,
    /// The counter that the server showed last.
    pub(super) counter: Option<u64>,
    /// The greatest plausible counter, if the counter of the server is greater.
    pub(super) counter_limit: Option<u64>,
    duplicate: bool,
    /// The last error, while it is not connected or not polled.
    pub(super) trouble: Option<Unknown>,
    /// The standing that was reported last.
    reported: String,
    /// Whether the master left a request unanswered for a whole command timeout and has not answered since.
    /// It is then not asked for votes (P-9): a round that waits for it blocks the lock at the masters that granted
    /// it. With one of three masters hung, several candidates could do so in turn for seconds. Polls
    /// continue.
    silent: bool,
    pub(super) latency: Duration,
    answered: BootInstant,
    /// The number of calls of batches without an answer.
    pub(super) under_way: usize,
}

impl Master {
    pub(super) fn connected(&self) -> Result<ConnectionId, Unknown> {
        if self.connected {
            return Ok(self.connection);
        }
        let why = self.trouble.as_ref().map(ToString::to_string);
        Err(Unknown::NotConnected(why.unwrap_or_else(|| "connecting".into())))
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.connected
    }

    pub(super) fn answered(&mut self, now: BootInstant) {
        self.answered = now;
        self.silent = false;
    }

    /// Returns the time for which the master has left all requests unanswered.
    pub(super) fn quiet(&self, now: BootInstant) -> Duration {
        now.since(self.answered)
    }

    /// Records that a request sent at `sent` was not answered in time.
    pub(super) fn silent_since(&mut self, sent: BootInstant) {
        self.silent = self.answered <= sent;
    }

    /// Returns the reason why the master is ineligible. `distrusted` is the remaining distrust of its clock.
    pub(super) fn ineligible(&self, distrusted: Option<Duration>) -> Option<Ineligible> {
        if self.duplicate {
            return Some(Ineligible::Duplicate);
        }
        let ahead = || {
            Some(Ineligible::CounterAhead {
                found: self.counter?,
                limit: self.counter_limit?,
            })
        };
        let step = || distrusted.map(|left| Ineligible::ClockStep(left.as_secs() + 1));
        self.ineligible.clone().or_else(ahead).or_else(step)
    }

    /// Reports whether the facts are too old: the task that polls the master hangs, or this process stood still.
    fn is_stale(&self, now: BootInstant) -> bool {
        now > self.facts_until
    }

    /// Returns an error if the known facts give no vote, whether or not the master is connected.
    pub(super) fn may_vote(&self, distrusted: Option<Duration>, now: BootInstant) -> Result<(), Unknown> {
        if self.silent {
            return Err(Unknown::Silent);
        }
        if let Some(reason) = self.ineligible(distrusted) {
            return Err(Unknown::Ineligible(reason.to_string()));
        }
        let Some(facts) = &self.facts else {
            // Only a poll shows that the server is not sealed.
            let connecting = || Unknown::NotConnected("connecting".into());
            return Err(self.trouble.clone().unwrap_or_else(connecting));
        };
        if !facts.sealed() {
            return Err(Unknown::NotSealed);
        }
        if self.is_stale(now) {
            return Err(self.trouble.clone().unwrap_or(Unknown::NotPolled));
        }
        Ok(())
    }

    /// Returns the facts of a server that counts among those of this quorum.
    pub(super) fn listed_facts(&self) -> Option<&MasterFacts> {
        self.facts.as_ref().filter(|_| self.listed)
    }

    fn standing(&self, distrusted: Option<Duration>, now: BootInstant) -> String {
        match (self.ineligible(distrusted), &self.facts) {
            _ if self.silent => "does not answer".into(),
            _ if self.facts.is_some() && self.is_stale(now) => "not polled".into(),
            (_, None) => "unknown".into(),
            // The remaining seconds are omitted, because they differ at each poll.
            (Some(Ineligible::ClockStep(_)), _) => "refused: the clock of the server stepped".into(),
            (Some(reason), _) => format!("refused: {reason}"),
            (None, Some(facts)) if facts.sealed() => "sealed".into(),
            _ => "not sealed".into(),
        }
    }

    /// Restores a retirement that a server has forgotten, with its whole memory or by an older snapshot. A
    /// process that still has the url of that server would otherwise seal it again (P-28). The same url may later
    /// lead to the successor, which is named in the text of the retirement or was sealed by other processes.
    fn recall_retirement(&mut self, facts: &mut MasterFacts) {
        if facts.fingerprint.starts_with(eligibility::RETIRED) {
            self.retired = Some(facts.fingerprint.clone());
        } else if let Some(retired) = &self.retired
            && !facts.sealed()
            && !retired.contains(&facts.run_id)
        {
            facts.fingerprint.clone_from(retired);
        }
    }

    #[cfg(test)]
    pub(super) fn touch(&mut self, now: BootInstant) {
        self.facts_until = now + POLL_EVERY + POLL_LATE;
    }

    /// Returns the time from a poll to the next one.
    pub(super) fn poll_after(&self) -> Duration {
        self.poll_after.max(POLL_EVERY)
    }

    fn connect(&mut self, connection: ConnectionId, now: BootInstant) {
        self.connected = true;
        self.connection = connection;
        self.connected_at = now;
        self.silent = false;
        self.answered = now;
    }
}

impl Engine {
    pub(super) fn on_connected(&mut self, master: usize, connection: ConnectionId, now: BootInstant) {
        let of = &mut self.masters[master];
        of.connect(connection, now);
        // No vote before the first poll.
        of.facts = None;
        of.reported.clear();
    }

    pub(super) fn on_replaced(
        &mut self,
        master: usize,
        connection: ConnectionId,
        facts: MasterFacts,
        now: BootInstant,
    ) {
        self.masters[master].connect(connection, now);
        self.enter(master, facts, now);
    }

    pub(super) fn on_disconnected(&mut self, master: usize) {
        self.masters[master].connected = false;
        self.masters[master].listed = false;
        self.compare_servers();
        self.outputs.push_back(Output::VotersChanged);
        self.outputs.push_back(Output::Poll { master });
    }

    pub(super) fn on_server_changed(&mut self, master: usize) {
        let of = &mut self.masters[master];
        *of = Master {
            server: of.server + 1,
            under_way: of.under_way,
            ..Master::default()
        };
        self.clocks.forget(master);
        self.compare_servers();
    }

    /// Restores the retirement in facts that were read by this call: a server that forgot its retirement is still
    /// retired.
    pub fn recall_retirement(&mut self, master: usize, call: &super::Call, facts: &mut MasterFacts) {
        let of = &mut self.masters[master];
        if of.server == call.server {
            of.recall_retirement(facts);
        }
    }

    pub(super) fn on_polled(
        &mut self,
        master: usize,
        connection: ConnectionId,
        facts: MasterFacts,
        now: BootInstant,
    ) {
        let of = &self.masters[master];
        if !of.connected || of.connection != connection {
            return;
        }
        self.enter(master, facts, now);
        self.report(master, now);
    }

    pub(super) fn on_poll_failed(&mut self, master: usize, reason: Unknown, now: BootInstant) {
        let of = &mut self.masters[master];
        of.trouble = Some(reason);
        of.poll_after = POLL_EVERY;
        self.report(master, now);
    }

    fn enter(&mut self, master: usize, facts: MasterFacts, now: BootInstant) {
        self.identity.note(master, &facts);
        let of = &mut self.masters[master];
        if of.facts.is_some() && of.is_stale(now) {
            // The master has a vote again, which must be reported.
            of.reported.clear();
        }
        of.facts = Some(facts);
        of.listed = true;
        // The facts are fresh now. Their lifetime depends on whether the master can vote.
        of.facts_until = now;
        of.trouble = None;
        // This precedes the first vote of this connection: a second name of a server must not give a second
        // vote.
        self.compare_servers();
        self.masters[master].ineligible = self.ineligible_by(master);
        self.judge_counters(now);
        let (distrusted, unused) = (self.clocks.distrusted(master, now), self.is_unused(now));
        let of = &mut self.masters[master];
        let rest = unused && now.since(of.connected_at) > self.longest_lease;
        of.poll_after = if rest && of.may_vote(distrusted, now).is_ok() {
            POLL_UNUSED_EVERY
        } else {
            POLL_EVERY
        };
        of.facts_until = now + of.poll_after + POLL_LATE;
    }

    /// Reports whether this process can neither hold a lock nor contend for one: the last request is older
    /// than the longest lease.
    pub(super) fn is_unused(&self, now: BootInstant) -> bool {
        now.since(self.last_request) > self.longest_lease
    }

    /// Requests a poll of the masters that may have been polled seconds ago, because they are now in use.
    pub(super) fn poll_rested(&mut self) {
        for (master, of) in self.masters.iter().enumerate() {
            if of.poll_after > POLL_EVERY {
                self.outputs.push_back(Output::Poll { master });
            }
        }
    }

    fn ineligible_by(&self, master: usize) -> Option<Ineligible> {
        let facts = self.masters[master].facts.as_ref()?;
        self.judge(facts)
    }

    /// Returns the reason why a server with these facts may not vote in this quorum.
    #[must_use]
    pub fn judge(&self, facts: &MasterFacts) -> Option<Ineligible> {
        eligibility::check(facts, self.identity.fingerprint(), self.identity.id())
    }

    /// Marks every master that shares a `run_id` with another one, so that neither has a vote (P-2), and pins the id of
    /// the quorum once a majority of the servers shows one.
    fn compare_servers(&mut self) {
        // A server without a run_id is not a master of any quorum, and cannot be identified as a duplicate.
        let run_id = |master: &Master| {
            let run_id = master.listed_facts()?.run_id.clone();
            Some(run_id).filter(|run_id| !run_id.is_empty())
        };
        let all: Vec<Option<String>> = self.masters.iter().map(run_id).collect();
        for (master, own) in self.masters.iter_mut().zip(&all) {
            let same = |other: &&Option<String>| own.is_some() && own == *other;
            master.duplicate = all.iter().filter(same).count() > 1;
        }
        let listed = self.masters.iter().filter_map(Master::listed_facts);
        if self.identity.learn(listed, self.size.majority()) {
            for master in 0..self.masters.len() {
                self.masters[master].ineligible = self.ineligible_by(master);
            }
        }
        self.report_foreign_majority();
    }

    /// Reports once when a majority is sealed for another quorum: its candidates may hold every lock (P-47).
    fn report_foreign_majority(&mut self) {
        let foreign = |master: &&Master| {
            let facts = master.listed_facts().filter(|_| !master.duplicate);
            facts.is_some_and(|facts| self.identity.is_foreign(facts))
        };
        let lost = self.masters.iter().filter(foreign).count() >= self.size.majority()
            && !self.plant.is(Plant::ForeignMajorityIgnored);
        if lost && !self.sealed_for_another {
            self.quorum_losses += 1;
            self.outputs.push_back(Output::SealedForAnother);
        }
        self.sealed_for_another = lost;
    }

    /// Reports the standing of a master if it differs from the one before: a clock step or a duplicate may start and
    /// end between two polls.
    fn report(&mut self, master: usize, now: BootInstant) {
        let distrusted = self.clocks.distrusted(master, now);
        let of = &mut self.masters[master];
        let standing = of.standing(distrusted, now);
        if of.reported == standing {
            return;
        }
        of.reported.clone_from(&standing);
        let refused = of.ineligible(distrusted).is_some();
        self.outputs.push_back(Output::MasterChanged {
            master,
            standing,
            refused,
        });
    }
}
