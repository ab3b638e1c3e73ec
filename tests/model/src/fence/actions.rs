//! Every step that a candidate, a master, the agent, the kubelet or the clock may take next.

use redlock_core::fence::Removal;

use super::{
    bounds::{Bounds, Bug},
    decisions,
    state::{ALL, Cluster, LEASES, Lease, MASTERS, Master, Phase, PodState, Seal, State, Stop, cluster_of},
};

/// The commands that travel to each master independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Grant,
    Renew,
    Mark,
    /// The mark once more, with the longer delay.
    Raise,
    End,
    Again,
}

/// How a command reaches the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The masters that execute the command at once.
    pub(super) at_once: u8,
    /// Whether the other masters may execute the command late; otherwise, they never do.
    pub(super) late: bool,
    /// Whether the replies arrive.
    pub(super) replies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Acquire(u8, Way),
    /// A master executes a command late.
    Late {
        lease: usize,
        sent: Sent,
        master: usize,
    },
    Send(usize, Sent, Way),
    StartUnfenced(usize),
    /// These masters forbid starts.
    Close(usize, u8),
    /// All pods are gone, and these masters have `clean`.
    Clean(usize, u8),
    /// The holder releases the lease.
    Release(usize, Way),
    Reserve(usize, Cluster, Way),
    /// The process of the holder dies, and another one is started.
    Crash(usize),
    Publish,
    /// A user deletes the pod, and the kubelet stops it.
    Delete,
    /// A user deletes the object of the pod by force, and its containers continue to run.
    Force,
    Empty,
    /// The agent reads these masters.
    Round(u8),
    Restart,
    Wipe(usize),
    Forget(usize),
    Break(u8),
    Seal(usize),
    /// All masters that have waited are sealed with the floor of a total loss.
    Fallback,
    Tick,
}

/// The sets of masters that contain a majority.
const SOME: [u8; 4] = [0b011, 0b101, 0b110, 0b111];

#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) bounds: Bounds,
    pub(super) bug: Bug,
    /// A state that must be reached, instead of the one that must not be.
    pub(super) goal: Option<Goal>,
}

/// A state that the rules must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// A pod continues under the lease of a sibling, after its holder has died.
    Adoption,
    /// B starts after all candidates of A have died.
    TakeOver,
    /// A runs again after B has stopped cleanly.
    Return,
}

impl World {
    pub(super) fn list(&self, state: &State, out: &mut Vec<Action>) {
        self.of_candidates(state, out);
        for id in 0..LEASES {
            self.of_commands(state, id, out);
            if state.leases[id].holds() {
                self.of_holder(state, id, out);
            }
        }
        self.of_node(state, out);
        self.of_masters(state, out);
        if self.bounds.benign {
            out.retain(|action| self.step(state, *action).is_some());
        }
        if !self.bounds.benign || out.is_empty() {
            out.push(Action::Tick);
        }
        if self.bounds.benign {
            self.of_faults(state, out);
        }
    }

    fn of_candidates(&self, state: &State, out: &mut Vec<Action>) {
        if state.leases[LEASES - 1].phase != Phase::Unborn {
            return;
        }
        for candidate in 0..3_u8 {
            let busy = |lease: &Lease| {
                lease.candidate == candidate && (lease.phase == Phase::Granting || lease.holds())
            };
            let of = usize::from(candidate);
            if state.used.acquires[of] >= self.bounds.acquires[of] || state.leases.iter().any(busy) {
                continue;
            }
            let free = |master: &usize| state.grants(*master, cluster_of(candidate));
            let free = (0..MASTERS).filter(free).fold(0, |all, m| all | 1 << m);
            let count = u8::count_ones(free);
            // A benign candidate asks when a majority can be free.
            if count >= 2 || (count > 0 && !self.bounds.benign) {
                let ways = self
                    .ways(state, free)
                    .into_iter()
                    .filter(|way| way.replies && way.at_once != 0);
                out.extend(ways.map(|way| Action::Acquire(candidate, way)));
            }
        }
    }

    fn of_commands(&self, state: &State, id: usize, out: &mut Vec<Action>) {
        let lease = &state.leases[id];
        for (sent, to) in [
            (Sent::Grant, lease.grant.to),
            (Sent::Renew, lease.renew.to),
            (Sent::Mark, lease.mark.to),
            (Sent::Raise, lease.raise.to),
            (Sent::End, lease.ends.to),
            (Sent::Again, lease.again),
        ] {
            for master in 0..MASTERS {
                if to & 1 << master == 0 || !state.masters[master].is_sealed() {
                    continue;
                }
                if !self.has_effect(state, (id, sent), master) {
                    continue;
                }
                out.push(Action::Late {
                    lease: id,
                    sent,
                    master,
                });
            }
        }
    }

    /// A refused command is equivalent to one that is never executed.
    fn has_effect(&self, state: &State, (id, sent): (usize, Sent), master: usize) -> bool {
        let found = &state.masters[master];
        let mine = found.lease == id as u8;
        match sent {
            Sent::Grant => state.grants(master, state.leases[id].cluster()),
            Sent::Renew => mine || found.lease_left == 0 || self.bug == Bug::KeptWhereRefused,
            Sent::Mark | Sent::Raise | Sent::End | Sent::Again => mine,
        }
    }

    fn of_holder(&self, state: &State, id: usize, out: &mut Vec<Action>) {
        let (lease, bounds) = (&state.leases[id], &self.bounds);
        let fresh = lease.valid == bounds.lease && (bounds.benign || !lease.marked);
        if state.used.renewals < bounds.renewals && lease.renew.to == 0 && !fresh {
            self.list_ways(state, id, Sent::Renew, out);
        }
        if !lease.marked && (lease.delay == 0 || self.bug == Bug::MarkBeforeDelay) {
            self.list_ways(state, id, Sent::Mark, out);
        }
        if bounds.unfenced && lease.cluster() == Cluster::A && lease.may_start {
            if lease.raise.to == 0 && !lease.raised {
                self.list_ways(state, id, Sent::Raise, out);
            }
            if lease.raised && state.unfenced == 0 {
                out.push(Action::StartUnfenced(id));
            }
        }
        if bounds.crashes > state.used.crashes && !bounds.benign {
            out.push(Action::Crash(id));
        }
        if bounds.ends && !bounds.benign {
            self.of_end(state, id, out);
        }
    }

    fn of_end(&self, state: &State, id: usize, out: &mut Vec<Action>) {
        let lease = &state.leases[id];
        let some = state
            .sets(state.sealed())
            .into_iter()
            .filter(|masters| masters.count_ones() >= 2);
        if lease.may_start && lease.stop == Stop::Runs {
            out.extend(some.clone().map(|masters| Action::Close(id, masters)));
        }
        if lease.stop == Stop::Closed && self.is_gone(state, lease) {
            out.extend(some.map(|masters| Action::Clean(id, masters)));
        }
        // The lease of a lock without fencing.
        let plain = self.bounds.plain && lease.cluster() == Cluster::B;
        let removal = match decisions::removal(lease, self.bug) {
            Removal::Nothing if plain => Removal::All,
            removal => removal,
        };
        let ways = self.ways(state, self.useful(state, id, Sent::End)).into_iter();
        for way in ways.filter(|way| way.replies && way.at_once != 0) {
            if removal != Removal::Nothing {
                out.push(Action::Release(id, way));
            }
            for cluster in [Cluster::A, Cluster::B] {
                if !self.bounds.reserves {
                    continue;
                }
                if removal != Removal::Nothing || cluster == lease.cluster() {
                    out.push(Action::Reserve(id, cluster, way));
                }
            }
        }
    }

    /// Returns the ways to send a command. `useful` are the masters on which it has an effect now.
    fn ways(&self, state: &State, useful: u8) -> Vec<Way> {
        let mut out = Vec::new();
        for at_once in state.sets(useful) {
            if (self.bounds.benign && at_once != useful)
                || (self.bounds.whole && at_once != useful && at_once != 0)
            {
                continue;
            }
            for (late, replies) in [(false, true), (true, true), (false, false), (true, false)] {
                let useless = late && at_once == ALL || !replies && at_once == 0;
                let allowed = (!late || state.used.late < self.bounds.late)
                    && (replies || state.used.losses < self.bounds.losses);
                if allowed && !useless {
                    out.push(Way {
                        at_once,
                        late,
                        replies,
                    });
                }
            }
        }
        out
    }

    /// Returns the masters on which a command of this lease has an effect now.
    fn useful(&self, state: &State, id: usize, sent: Sent) -> u8 {
        let has = |m: &usize| state.masters[*m].is_sealed() && self.has_effect(state, (id, sent), *m);
        (0..MASTERS).filter(has).fold(0, |all, m| all | 1 << m)
    }

    fn list_ways(&self, state: &State, id: usize, sent: Sent, out: &mut Vec<Action>) {
        let ways = self.ways(state, self.useful(state, id, sent));
        out.extend(ways.into_iter().map(|way| Action::Send(id, sent, way)));
    }

    /// Reports whether the list of pods, read after starts were forbidden, has no pod that may run.
    fn is_gone(&self, state: &State, lease: &Lease) -> bool {
        if lease.cluster() == Cluster::B {
            return true;
        }
        let of = usize::from(lease.candidate);
        let object = state.pod.state != PodState::Absent && !state.pod.forced;
        let reaches_back =
            state.began[of] < lease.first && lease.earlier_left == 0 || self.bug == Bug::AdopterReleases;
        let saw_forced = state.saw_forced[of] && self.bug != Bug::ForceDeletedGone;
        !object && reaches_back && !saw_forced && state.unfenced == 0
    }

    fn of_node(&self, state: &State, out: &mut Vec<Action>) {
        let (bounds, used) = (&self.bounds, &state.used);
        match state.pod.state {
            PodState::Absent if used.pods < bounds.pods => out.push(Action::Publish),
            PodState::Absent => {}
            PodState::Killed { empty: false } => out.push(Action::Empty),
            _ => {}
        }
        if state.pod.state != PodState::Absent && !bounds.benign {
            if !state.pod.forced && bounds.ends {
                out.push(Action::Delete);
            }
            let started = !matches!(state.pod.state, PodState::Waiting | PodState::Killed { .. });
            if started && !state.pod.forced && used.forced < bounds.forced {
                out.push(Action::Force);
            }
            if used.restarts < bounds.restarts {
                out.push(Action::Restart);
            }
        }
        if state.pod.state == PodState::Absent {
            return;
        }
        let sealed = state.sealed();
        let rounds = state
            .sets(sealed)
            .into_iter()
            .filter(|masters| masters.count_ones() >= 2);
        // A round without an effect is not a step: `next_state` drops it.
        out.extend(
            rounds
                .filter(|masters| !bounds.benign || *masters == sealed)
                .map(Action::Round),
        );
    }

    fn of_masters(&self, state: &State, out: &mut Vec<Action>) {
        let (bounds, used) = (&self.bounds, &state.used);
        for master in 0..MASTERS {
            let found = &state.masters[master];
            if found.is_sealed() && used.wipes < bounds.wipes {
                out.push(Action::Wipe(master));
            }
            // The agent protects B from pods of A. That A is not protected from B here is the limit of S1.
            let of_a = |id: u8| {
                state
                    .leases
                    .get(usize::from(id))
                    .is_some_and(|lease| lease.cluster() == Cluster::A)
            };
            if found.is_sealed() && used.forgets < bounds.forgets && of_a(found.lease) {
                out.push(Action::Forget(master));
            }
            if found.seal == Seal::Waits(0) && state.sealed().count_ones() >= 2 {
                out.push(Action::Seal(master));
            }
        }
        let waited = state
            .masters
            .iter()
            .filter(|master| master.seal == Seal::Waits(0));
        if waited.count() >= 2 {
            out.push(Action::Fallback);
        }
        if used.breaks < bounds.breaks {
            out.extend(SOME.map(Action::Break));
        }
    }

    /// Lists the faults of a benign schedule: a holder dies, and nothing else.
    fn of_faults(&self, state: &State, out: &mut Vec<Action>) {
        if state.used.crashes < self.bounds.crashes {
            let kept = |master: &&Master| master.reserved_left > self.bounds.lease;
            let kept = state.masters.iter().filter(kept).count() >= 2;
            let holders = (0..LEASES).filter(|id| kept && state.leases[*id].may_start());
            out.extend(holders.map(Action::Crash));
        }
        if self.bounds.ends {
            let holders = (0..LEASES).filter(|id| state.leases[*id].may_start());
            holders.for_each(|id| self.of_end(state, id, out));
            if state.runs() {
                out.push(Action::Delete);
            }
        }
    }
}
