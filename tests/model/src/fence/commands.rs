//! The effects of each command on the masters, and of their replies on the holder.

use redlock_core::fence::Predecessor;

use super::{
    actions::World,
    bounds::{Bug, LONG, LONGEST},
    decisions,
    state::{Cluster, End, Flight, Lease, MAJORITY, MASTERS, Mark, Phase, Registers, Reserved, Seal, State},
};

const fn takes(cluster: Cluster, reserved: Reserved) -> bool {
    match (reserved, cluster) {
        (Reserved::Free, _)
        | (Reserved::For(Cluster::A), Cluster::A)
        | (Reserved::For(Cluster::B), Cluster::B) => true,
        (Reserved::For(_) | Reserved::ForNone, _) => false,
    }
}

impl World {
    fn is_plain(&self, lease: &Lease) -> bool {
        self.bounds.plain && lease.cluster() == Cluster::B
    }

    fn planned(&self, lease: &Lease) -> u8 {
        let unfenced = self.bounds.unfenced && lease.cluster() == Cluster::A;
        if unfenced { LONG } else { self.bounds.delay }
    }
}

pub(super) fn grant(world: &World, state: &mut State, id: usize, (master, replies): (usize, bool)) {
    let found = &mut state.masters[master];
    found.registers.counter += 1;
    (found.lease, found.lease_left) = (id as u8, world.bounds.lease);
    state.ever = state.ever.max(found.registers.counter);
    let lease = &mut state.leases[id];
    lease.grant.to &= !(1 << master);
    if !replies || lease.phase != Phase::Granting {
        return;
    }
    lease.acks |= 1 << master;
    if lease.acks.count_ones() >= MAJORITY {
        win(world, state, id);
    }
}

/// All masters that granted confirm the token: the other model explores this part.
fn win(world: &World, state: &mut State, id: usize) {
    let acks = state.leases[id].acks;
    let by = || (0..MASTERS).filter(|m| acks & 1 << m != 0);
    let token = by()
        .map(|m| state.masters[m].registers.counter)
        .max()
        .unwrap_or_default();
    let seen = by()
        .map(|m| state.masters[m].registers)
        .fold(Registers::default(), merged);
    let marks: Vec<Mark> = by().map(|m| state.masters[m].registers.mark).collect();
    for master in by() {
        state.masters[master].registers.counter = token;
    }
    let of_lineage = state.leases.map(|lease| lease.beside.then_some(lease.first));
    let lease = &mut state.leases[id];
    let held = seen.held.max(seen.held_floor);
    let succession = decisions::succession(lease.cluster(), &marks, held, token);
    let first = u8::try_from(succession.first.0).unwrap_or(u8::MAX);
    let planned = world.planned(lease);
    let beside = succession.predecessor == Predecessor::Unknown || of_lineage.contains(&Some(first));
    *lease = Lease {
        phase: Phase::Won,
        candidate: lease.candidate,
        token,
        grant: lease.grant,
        first,
        beside,
        earlier_left: if beside { LONGEST } else { 0 },
        valid: world.bounds.lease,
        delay: match succession.is_sibling() {
            true => 0,
            false => decisions::delay(held, seen.clean, seen.delay, planned, world.bug),
        },
        ..Lease::default()
    };
}

/// Merges the registers of two masters like a seal.
fn merged(one: Registers, other: Registers) -> Registers {
    Registers {
        counter: one.counter.max(other.counter),
        held: one.held.max(other.held),
        held_floor: one.held_floor.max(other.held_floor),
        clean: one.clean.max(other.clean),
        closed: one.closed.max(other.closed),
        delay: one.delay.max(other.delay),
        mark: decisions::merged(one.mark, other.mark),
    }
}

/// Raises the registers that belong to a marked lease.
fn raise(world: &World, registers: &mut Registers, id: usize, lease: &Lease, delay: u8) {
    let held = registers.held.max(registers.held_floor);
    registers.held = lease.token.max(registers.held);
    let delay = (lease.token, delay);
    registers.delay = match world.bug {
        Bug::DelayLowered if registers.delay.0 == lease.token => delay,
        _ => delay.max(registers.delay),
    };
    if registers.mark.token >= lease.token || world.is_plain(lease) {
        return;
    }
    let first = match world.bug {
        Bug::FirstByEachMaster => {
            let succession = decisions::succession(lease.cluster(), &[registers.mark], held, lease.token);
            u8::try_from(succession.first.0).unwrap_or(u8::MAX)
        }
        _ => lease.first,
    };
    registers.mark = Mark {
        token: lease.token,
        first,
        cluster: lease.cluster(),
        lease: id as u8,
    };
}

pub(super) fn mark(
    world: &World,
    state: &mut State,
    id: usize,
    raises: bool,
    (master, replies): (usize, bool),
) {
    let lease = &mut state.leases[id];
    let flight = if raises { &mut lease.raise } else { &mut lease.mark };
    flight.to &= !(1 << master);
    let found = &mut state.masters[master];
    if found.lease != id as u8 {
        return;
    }
    let delay = if raises { LONG } else { world.bounds.delay };
    raise(world, &mut found.registers, id, lease, delay);
    if !replies || lease.phase != Phase::Won {
        return;
    }
    let acks = if raises {
        &mut lease.raise_acks
    } else {
        &mut lease.acks
    };
    *acks |= 1 << master;
    let done = acks.count_ones() >= MAJORITY;
    match raises {
        true => lease.raised |= done,
        false => lease.may_start |= done,
    }
}

pub(super) fn renew(world: &World, state: &mut State, id: usize, (master, replies): (usize, bool)) {
    let lease = &mut state.leases[id];
    lease.renew.to &= !(1 << master);
    let found = &mut state.masters[master];
    let mine = found.lease == id as u8;
    let free = found.lease_left == 0;
    let granted = takes(lease.cluster(), found.reserved) && (mine || free);
    let keeps = lease.marked && !world.is_plain(lease);
    if keeps && (granted || world.bug == Bug::KeptWhereRefused) {
        let kept = decisions::kept(world.bounds.lease, LONGEST);
        let before = takes(lease.cluster(), found.reserved).then_some(found.reserved_left);
        found.reserved = Reserved::For(lease.cluster());
        found.reserved_left = before.unwrap_or_default().max(kept);
    }
    if !granted {
        return;
    }
    found.registers.counter = found.registers.counter.max(lease.token);
    (found.lease, found.lease_left) = (id as u8, found.lease_left.max(world.bounds.lease));
    if lease.marked {
        let delay = if lease.raised { LONG } else { world.bounds.delay };
        raise(world, &mut found.registers, id, lease, delay);
    }
    if !replies || !lease.holds() {
        return;
    }
    lease.renew_acks |= 1 << master;
    if lease.renew_acks.count_ones() >= MAJORITY {
        let valid = world.bounds.lease - u8::from(lease.renew.late);
        lease.valid = lease.valid.max(valid);
        if state.unfenced > 0 {
            state.unfenced = state.unfenced.max(lease.valid + LONG);
        }
    }
}

pub(super) fn end(world: &World, state: &mut State, id: usize, end: End, master: usize) {
    let (cluster, plain) = (state.leases[id].cluster(), world.is_plain(&state.leases[id]));
    let confirmed = state.leases[id].stop == super::state::Stop::Confirmed || plain;
    let found = &mut state.masters[master];
    if found.lease != id as u8 {
        return;
    }
    match end {
        End::Nothing => {}
        End::Undo => found.lease_left = 0,
        End::Release => {
            found.lease_left = 0;
            if found.reserved == Reserved::For(cluster) {
                found.reserved_left = 0;
            }
        }
        End::Reserve(to) => {
            let own = found.reserved == Reserved::For(cluster);
            let refused = !own && found.reserved != Reserved::Free && found.reserved != Reserved::For(to);
            if refused || (own && to != cluster && !confirmed) {
                return;
            }
            let rest = if world.bug == Bug::ReserveShortens {
                0
            } else {
                found.reserved_left
            };
            (found.reserved, found.reserved_left) = (Reserved::For(to), found.lease_left.max(rest));
            found.lease_left = 0;
        }
    }
}

/// Repeats an end: of a release, only the lease; of a reserve, nothing if an own reservation exists.
pub(super) fn again(world: &World, state: &mut State, id: usize, master: usize) {
    let cluster = state.leases[id].cluster();
    match state.leases[id].end {
        End::Nothing => {}
        End::Undo | End::Release => end(world, state, id, End::Undo, master),
        End::Reserve(to) => {
            let own = state.masters[master].reserved == Reserved::For(cluster);
            if to == cluster || !own {
                end(world, state, id, End::Reserve(to), master);
            }
        }
    }
}

pub(super) fn lease_tick(world: &World, lease: &mut Lease) {
    // An end that a master did not execute is repeated until the lease has ended.
    let left = lease.ends.to;
    for flight in [
        &mut lease.renew,
        &mut lease.mark,
        &mut lease.raise,
        &mut lease.ends,
    ] {
        *flight = match *flight {
            Flight { to, late: false } if to != 0 && world.bounds.late > 0 => Flight { to, late: true },
            _ => Flight::default(),
        };
    }
    if lease.ends.to == 0 && left != 0 && world.bounds.late > 0 {
        (lease.again, lease.again_left) = (lease.again | left, world.bounds.lease + 1);
    }
    if lease.phase == Phase::Granting {
        // The attempt is lost, and is undone on all masters.
        (lease.phase, lease.end) = (Phase::Over, End::Undo);
        lease.ends = Flight {
            to: super::state::ALL,
            late: false,
        };
    }
    lease.grant = Flight::default();
    lease.again_left = lease.again_left.saturating_sub(1);
    if lease.again_left == 0 {
        lease.again = 0;
    }
    lease.valid = lease.valid.saturating_sub(1);
    lease.delay = lease.delay.saturating_sub(1);
    lease.earlier_left = lease.earlier_left.saturating_sub(1);
    if lease.phase == Phase::Won && lease.valid == 0 {
        lease.phase = Phase::Over;
    }
}

pub(super) fn seal(state: &mut State, master: usize) {
    let others = state.masters.iter().filter(|found| found.is_sealed());
    let floor = others
        .map(|found| found.registers)
        .fold(Registers::default(), merged);
    let found = &mut state.masters[master];
    (found.seal, found.registers) = (Seal::Sealed, floor);
}

/// Seals with the floor of a total loss: every lease that may have been held counts as ended uncleanly.
pub(super) fn fallback(state: &mut State) {
    let known = state.masters.iter().map(|found| found.registers);
    let known = known.fold(Registers::default(), merged);
    // The clock is beyond every token so far.
    state.ever += 1;
    let floor = Registers {
        counter: state.ever,
        held_floor: state.ever,
        ..known
    };
    for found in &mut state.masters {
        if found.seal == Seal::Waits(0) {
            (found.seal, found.registers) = (Seal::Sealed, floor);
        }
    }
}
