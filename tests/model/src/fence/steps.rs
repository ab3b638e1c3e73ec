//! The effect of each step.

use super::{
    actions::{Action, Sent, Way, World},
    bounds::{Bug, LONG, LONGEST},
    commands,
    decisions::{self, Happens, Shown},
    state::{
        ALL, Broken, Cluster, End, Flight, LEASES, Lease, MASTERS, Mark, NO_LEASE, Phase, Pod, PodState,
        Reserved, Seal, State, Stop,
    },
};

const fn to_all() -> Flight {
    Flight { to: ALL, late: false }
}

impl State {
    pub(super) fn sealed(&self) -> u8 {
        (0..MASTERS)
            .filter(|m| self.masters[*m].is_sealed())
            .fold(0, |all, m| all | 1 << m)
    }

    /// Reports whether a master would grant this cluster a new lease.
    pub(super) fn grants(&self, master: usize, cluster: Cluster) -> bool {
        let found = &self.masters[master];
        let kept = !matches!(found.reserved, Reserved::Free) && found.reserved != Reserved::For(cluster);
        found.is_sealed() && found.lease == NO_LEASE && !kept
    }
}

impl World {
    /// Returns the state after the action; `None` if nothing changes.
    pub(super) fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Acquire(candidate, way) => {
                let id = state
                    .leases
                    .iter()
                    .position(|lease| lease.phase == Phase::Unborn)?;
                state.used.acquires[usize::from(candidate)] += 1;
                state.leases[id] = Lease {
                    phase: Phase::Granting,
                    candidate,
                    grant: to_all(),
                    ..Lease::default()
                };
                self.sends(&mut state, id, Sent::Grant, way);
            }
            Action::Late { lease, sent, master } => self.executes(&mut state, lease, sent, (master, true)),
            Action::Seal(master) => commands::seal(&mut state, master),
            Action::Fallback => commands::fallback(&mut state),
            Action::Tick => self.tick(&mut state),
            Action::Send(id, sent, way) => {
                self.holder(&mut state, id, sent);
                self.sends(&mut state, id, sent, way);
            }
            Action::StartUnfenced(id) => state.unfenced = state.leases[id].valid + LONG,
            Action::Close(..)
            | Action::Clean(..)
            | Action::Release(..)
            | Action::Reserve(..)
            | Action::Crash(_) => {
                self.ends(&mut state, action);
            }
            Action::Wipe(_) | Action::Forget(_) | Action::Break(_) => self.fault(&mut state, action),
            Action::Publish
            | Action::Delete
            | Action::Force
            | Action::Empty
            | Action::Round(_)
            | Action::Restart => self.node(&mut state, action),
        }
        if self.bounds.benign && !self.bounds.ends {
            self.judge_benign(last, &mut state);
        }
        state.judge();
        state.tidy();
        state.rank();
        (state != *last).then_some(state)
    }

    fn executes(&self, state: &mut State, id: usize, sent: Sent, (master, replies): (usize, bool)) {
        match sent {
            Sent::Grant => commands::grant(self, state, id, (master, replies)),
            Sent::Renew => commands::renew(self, state, id, (master, replies)),
            Sent::Mark | Sent::Raise => {
                commands::mark(self, state, id, sent == Sent::Raise, (master, replies))
            }
            Sent::End => {
                let lease = &mut state.leases[id];
                lease.ends.to &= !(1 << master);
                // It may have run before a grant or a renewal that is still in flight, so it is repeated.
                let end = lease.end;
                if (lease.renew.to | lease.grant.to) & 1 << master != 0 {
                    (lease.again, lease.again_left) = (lease.again | 1 << master, self.bounds.lease + 1);
                }
                commands::end(self, state, id, end, master);
            }
            Sent::Again => {
                state.leases[id].again &= !(1 << master);
                commands::again(self, state, id, master);
            }
        }
    }

    fn holder(&self, state: &mut State, id: usize, sent: Sent) {
        let lease = &mut state.leases[id];
        match sent {
            Sent::Renew => {
                state.used.renewals += 1;
                (lease.renew, lease.renew_acks) = (to_all(), 0);
            }
            Sent::Mark => (lease.marked, lease.mark, lease.acks) = (true, to_all(), 0),
            Sent::Raise => (lease.raise, lease.raise_acks) = (to_all(), 0),
            Sent::Grant | Sent::End | Sent::Again => {}
        }
    }

    /// Sends a command: some masters execute it at once, and the others late or never.
    fn sends(&self, state: &mut State, id: usize, sent: Sent, way: Way) {
        state.used.late += u8::from(way.late);
        state.used.losses += u8::from(!way.replies);
        for master in (0..MASTERS).filter(|m| way.at_once & 1 << m != 0) {
            let refuses = sent == Sent::Grant && !state.grants(master, state.leases[id].cluster());
            if state.masters[master].is_sealed() && !refuses {
                self.executes(state, id, sent, (master, way.replies));
            }
        }
        if way.late {
            return;
        }
        let lease = &mut state.leases[id];
        match sent {
            Sent::Grant => lease.grant = Flight::default(),
            Sent::Renew => lease.renew = Flight::default(),
            Sent::Mark => lease.mark = Flight::default(),
            Sent::Raise => lease.raise = Flight::default(),
            Sent::End => lease.ends = Flight::default(),
            Sent::Again => {}
        }
    }

    fn ends(&self, state: &mut State, action: Action) {
        match action {
            Action::Close(id, masters) => {
                let lease = &mut state.leases[id];
                lease.stop = Stop::Closed;
                let token = lease.token;
                for master in (0..MASTERS).filter(|m| masters & 1 << m != 0) {
                    if state.masters[master].lease == id as u8 {
                        let closed = &mut state.masters[master].registers.closed;
                        *closed = token.max(*closed);
                    }
                }
                let has = |m: &usize| state.masters[*m].registers.closed >= token;
                if (0..MASTERS).filter(has).count() < 2 {
                    state.leases[id].stop = Stop::Runs;
                }
            }
            Action::Clean(id, masters) => {
                let token = state.leases[id].token;
                let mine =
                    |state: &State, m: usize| masters & 1 << m != 0 && state.masters[m].lease == id as u8;
                // The mark needs no lease; its vote does.
                for master in (0..MASTERS).filter(|m| masters & 1 << m != 0) {
                    let clean = &mut state.masters[master].registers.clean;
                    *clean = token.max(*clean);
                }
                if (0..MASTERS).filter(|m| mine(&*state, *m)).count() >= 2 {
                    state.leases[id].stop = Stop::Confirmed;
                }
            }
            Action::Release(id, way) => {
                let plain = self.bounds.plain && state.leases[id].cluster() == Cluster::B;
                let end = match decisions::removal(&state.leases[id], self.bug) {
                    _ if plain => End::Release,
                    redlock_core::fence::Removal::Lease if self.bug != Bug::UnmarkedReleased => End::Undo,
                    _ => End::Release,
                };
                self.end_with(state, id, end, way);
            }
            Action::Reserve(id, cluster, way) => self.end_with(state, id, End::Reserve(cluster), way),
            Action::Crash(id) => {
                state.used.crashes += 1;
                let lease = &mut state.leases[id];
                (lease.phase, lease.crashed) = (Phase::Over, lease.may_start);
                if let Some(began) = state.began.get_mut(usize::from(lease.candidate)) {
                    *began = state.ever;
                    state.saw_forced[usize::from(lease.candidate)] = false;
                }
            }
            _ => {}
        }
    }

    /// Ends the lease: the local end comes first.
    fn end_with(&self, state: &mut State, id: usize, end: End, way: Way) {
        let lease = &mut state.leases[id];
        (lease.phase, lease.end, lease.ends) = (Phase::Over, end, to_all());
        self.sends(state, id, Sent::End, way);
    }

    fn fault(&self, state: &mut State, action: Action) {
        match action {
            Action::Wipe(master) => {
                state.used.wipes += 1;
                let waits = if self.bug == Bug::SealWaitShort {
                    self.bounds.lease
                } else {
                    LONGEST
                };
                state.masters[master] = super::state::Master {
                    seal: Seal::Waits(waits),
                    ..super::state::Master::NEW
                };
                for lease in &mut state.leases {
                    if lease.phase == Phase::Granting {
                        lease.acks &= !(1 << master);
                    }
                }
            }
            Action::Forget(master) => {
                state.used.forgets += 1;
                let found = &mut state.masters[master];
                (found.lease_left, found.reserved_left) = (0, 0);
            }
            Action::Break(masters) => {
                state.used.breaks += 1;
                for master in (0..MASTERS).filter(|m| masters & 1 << m != 0) {
                    let found = &mut state.masters[master];
                    found.reserved = Reserved::ForNone;
                    found.reserved_left = found.reserved_left.max(LONGEST);
                }
            }
            _ => {}
        }
    }

    fn node(&self, state: &mut State, action: Action) {
        match action {
            Action::Publish => {
                state.used.pods += 1;
                state.pod.state = PodState::Waiting;
            }
            Action::Delete => state.pod = Pod::default(),
            Action::Force => {
                state.used.forced += 1;
                state.pod.forced = true;
                state.saw_forced = [true; 2];
            }
            Action::Empty => state.pod = decisions::pod(state.pod, Happens::Empty, self.bug),
            Action::Restart => {
                state.used.restarts += 1;
                state.permitted = 0;
                state.pod = decisions::pod(state.pod, Happens::Restart, self.bug);
            }
            Action::Round(masters) => self.round(state, masters),
            _ => {}
        }
    }

    pub(super) fn round(&self, state: &mut State, masters: u8) {
        let shown = std::array::from_fn(|m| (masters & 1 << m != 0).then(|| self.shown(state, m)));
        let (finding, permitted) = decisions::finding(shown, state.permitted);
        state.permitted = permitted;
        state.pod = decisions::pod(state.pod, Happens::Round(finding), self.bug);
    }

    fn shown(&self, state: &State, master: usize) -> Shown {
        let found = &state.masters[master];
        let lease = state.leases.get(usize::from(found.lease));
        let registers = &found.registers;
        let mut shown = Shown {
            lease: found.lease,
            of: lease.map(Lease::cluster).unwrap_or_default(),
            lease_left: found.lease_left,
            reserved: found.reserved,
            reserved_left: found.reserved_left,
            held: registers.held.max(registers.held_floor),
            mark: registers.mark,
            closed: registers.closed,
        };
        let own = lease.filter(|lease| lease.cluster() == Cluster::A);
        match (self.bug, own) {
            (Bug::UnmarkedCounted, Some(_)) => {
                (shown.reserved, shown.reserved_left) = (Reserved::For(Cluster::A), shown.lease_left);
            }
            (Bug::PermitBeforeMark, Some(lease)) if lease.phase != Phase::Granting => {
                let mark = Mark {
                    token: lease.token,
                    first: lease.token,
                    cluster: Cluster::A,
                    lease: found.lease,
                };
                shown.mark = decisions::merged(shown.mark, mark);
            }
            (Bug::NewerHeldIgnored, _) => shown.held = 0,
            _ => {}
        }
        shown
    }

    /// Checks that no pod is frozen or killed while holders renew.
    fn judge_benign(&self, last: &State, state: &mut State) {
        let froze = matches!(state.pod.state, PodState::Frozen { .. } | PodState::Killed { .. });
        if last.runs() && froze && state.used.renewals < self.bounds.renewals {
            state.broken = Some(Broken::Frozen);
        }
    }

    fn tick(&self, state: &mut State) {
        if self.bounds.polls {
            let sealed = state.sealed();
            self.round(state, sealed);
        }
        for master in &mut state.masters {
            master.lease_left = master.lease_left.saturating_sub(1);
            master.reserved_left = master.reserved_left.saturating_sub(1);
            if let Seal::Waits(left) = &mut master.seal {
                *left = left.saturating_sub(1);
            }
        }
        for id in 0..LEASES {
            commands::lease_tick(self, &mut state.leases[id]);
        }
        state.unfenced = state.unfenced.saturating_sub(1);
        match &mut state.pod.state {
            PodState::Running { until, .. } => *until = until.saturating_sub(1),
            PodState::Frozen { since, .. } => *since += 1,
            _ => {}
        }
        state.pod = decisions::pod(state.pod, Happens::Timer, self.bug);
    }
}
