//! The model: masters, attempts, and every step that any of them may take next.

use stateright::{Model, Property};

use crate::{
    attempt::{Attempt, Attempts, MOST, Phase},
    master::{Lease, Master, Seal, Slot, majority},
    state::State,
};

/// The clients that act at the same time.
const CLIENTS: u8 = 2;

/// Tokens are unique, each is greater than all that were won before its attempt began, and a slot runs once.
pub(crate) const PROMISE: &str = "what was promised holds";

/// A fault of the protocol itself, to prove that the check detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    Nothing,
    NoConfirm,
    ConfirmUnconditional,
    NoSeal,
    /// Delayed restart alone: the wait is kept, and nothing is restored.
    FloorNotRestored,
    FloorWithoutWait,
    FloorBeforeWait,
    /// A master that cannot be reached counts as one that lost its memory.
    FallbackWhenUnreachable,
    SlotsNotRestored,
    TieToOne,
}

/// The bounds of the exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) acquires: usize,
    pub(crate) claims: usize,
    pub(crate) slots: u8,
    pub(crate) wipes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The client has seen no counter yet, or the largest one so far.
    Acquire {
        floor: u8,
    },
    Claim {
        client: u8,
        slot: u8,
    },
    /// The master executes the first command; the reply arrives, or is lost.
    First {
        attempt: u8,
        master: u8,
        replies: bool,
    },
    Confirm {
        attempt: u8,
        master: u8,
        replies: bool,
    },
    /// The attempt is given up or lost, or its lease is.
    End {
        attempt: u8,
    },
    /// Commands in flight are too late: they no longer write.
    TooLate {
        attempt: u8,
    },
    /// The lease ran out here, or was deleted by its owner.
    Expire {
        master: u8,
    },
    Heal {
        attempt: u8,
        master: u8,
    },
    Wipe {
        master: u8,
    },
    Probe {
        master: u8,
    },
    Read {
        master: u8,
        source: u8,
        tie: Option<bool>,
    },
    Fallback {
        master: u8,
        source: Option<u8>,
    },
    Seal {
        master: u8,
    },
    /// The next slot is due.
    Due,
}

/// A quorum of `N` masters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World<const N: usize> {
    pub(crate) bounds: Bounds,
    pub(crate) bug: Bug,
}

fn ids() -> impl Iterator<Item = u8> {
    0..MOST as u8
}

impl<const N: usize> World<N> {
    fn masters() -> impl Iterator<Item = u8> {
        0..N as u8
    }

    fn of_attempts(&self, state: &State<N>, actions: &mut Vec<Action>) {
        for id in ids() {
            let attempt = &state.attempts.0[usize::from(id)];
            for master in Self::masters() {
                // A refused command changes nothing, and is equivalent to one that was never executed.
                let found = &state.masters[usize::from(master)];
                if !found.is_sealed() {
                    continue;
                }
                let listens = attempt.is_running();
                let replies: &[bool] = if listens { &[true, false] } else { &[false] };
                for replies in replies.iter().copied() {
                    let bit = 1 << master;
                    if attempt.first & bit != 0 && found.lease.is_none() {
                        actions.push(Action::First {
                            attempt: id,
                            master,
                            replies,
                        });
                    }
                    if attempt.confirms & bit != 0 {
                        actions.push(Action::Confirm {
                            attempt: id,
                            master,
                            replies,
                        });
                    }
                }
                if attempt
                    .holds()
                    .is_some_and(|token| token > found.registers.counter)
                {
                    actions.push(Action::Heal { attempt: id, master });
                }
            }
            if attempt.is_running() || attempt.holds().is_some() {
                actions.push(Action::End { attempt: id });
            }
            if !attempt.is_running() && attempt.is_pending() {
                actions.push(Action::TooLate { attempt: id });
            }
        }
    }

    fn of_clients(&self, state: &State<N>, actions: &mut Vec<Action>) {
        let Some(next) = state.next() else { return };
        // Attempts of one kind only: the registers of both kinds are independent.
        let busy = |attempt: &&Attempt<N>| attempt.is_running() || attempt.holds().is_some();
        let busy = || state.attempts.0.iter().filter(busy);
        // Candidates are interchangeable, jobs are not.
        if next < self.bounds.acquires && busy().count() < usize::from(CLIENTS) {
            actions.push(Action::Acquire { floor: 0 });
            if state.ever > 0 {
                actions.push(Action::Acquire { floor: state.ever });
            }
        }
        for client in 0..CLIENTS {
            // The job of the first claim is the first one.
            if busy().any(|attempt| attempt.client == client) || (next == 0 && client > 0) {
                continue;
            }
            if next < self.bounds.claims {
                let due = (1..=state.due).map(|slot| Action::Claim { client, slot });
                actions.extend(due);
            }
        }
        if state.due < self.bounds.slots {
            actions.push(Action::Due);
        }
    }

    fn of_masters(&self, state: &State<N>, actions: &mut Vec<Action>) {
        for master in Self::masters() {
            let found = &state.masters[usize::from(master)];
            if found.lease.is_some() {
                actions.push(Action::Expire { master });
            }
            if state.wipes < self.bounds.wipes {
                actions.push(Action::Wipe { master });
            }
            match found.seal {
                Seal::Sealed => {}
                Seal::Lost => actions.push(Action::Probe { master }),
                Seal::Probed { waits_for, read, .. } => {
                    self.of_quarantine(state, master, waits_for, read, actions);
                }
            }
        }
    }

    fn of_quarantine(
        &self,
        state: &State<N>,
        master: u8,
        waits_for: u8,
        read: u8,
        actions: &mut Vec<Action>,
    ) {
        let waited = waits_for == 0;
        let others = Self::masters().filter(|other| *other != master);
        let sealed: Vec<u8> = others
            .filter(|other| state.masters[usize::from(*other)].is_sealed())
            .collect();
        if read.count_ones() as usize >= majority(N) || self.bug == Bug::FloorNotRestored {
            if waited {
                actions.push(Action::Seal { master });
            }
            return;
        }
        if sealed.len() >= majority(N) && (waited || self.bug == Bug::FloorBeforeWait) {
            for source in sealed.iter().copied().filter(|source| read & 1 << source == 0) {
                let Seal::Probed { floor, .. } = state.masters[usize::from(master)].seal else {
                    continue;
                };
                let ties = read != 0 && floor.ties(state.masters[usize::from(source)].registers);
                if ties && self.bug == Bug::TieToOne {
                    let tie = |kept| Action::Read {
                        master,
                        source,
                        tie: Some(kept),
                    };
                    actions.extend([tie(true), tie(false)]);
                } else {
                    actions.push(Action::Read {
                        master,
                        source,
                        tie: None,
                    });
                }
            }
        }
        if waited && state.waited() >= majority(N) {
            actions.push(Action::Fallback { master, source: None });
        }
        if waited && self.bug == Bug::FallbackWhenUnreachable {
            let only = sealed.iter().map(|source| Action::Fallback {
                master,
                source: Some(*source),
            });
            actions.extend(only);
        }
    }
}

impl<const N: usize> Model for World<N> {
    type State = State<N>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N>> {
        vec![State {
            masters: [Master::NEW; N],
            attempts: Attempts::default(),
            won: 0,
            runs: [0; 2],
            due: 1,
            ever: 0,
            wipes: 0,
            broken: None,
            resealed: false,
            fell_back: false,
        }]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.of_attempts(state, actions);
        self.of_clients(state, actions);
        self.of_masters(state, actions);
    }

    fn next_state(&self, last: &State<N>, action: Action) -> Option<State<N>> {
        let mut state = *last;
        match action {
            Action::Acquire { floor } => state.begin(Attempt {
                phase: Phase::Granting,
                floor,
                after: last.last_token(),
                ..Attempt::default()
            }),
            Action::Claim { client, slot } => state.begin(Attempt {
                phase: Phase::Claiming(slot),
                client,
                ..Attempt::default()
            }),
            Action::First {
                attempt,
                master,
                replies,
            } => {
                state.first(attempt.into(), master.into(), replies, self.bug);
            }
            Action::Confirm {
                attempt,
                master,
                replies,
            } => {
                state.confirm(attempt.into(), master.into(), replies, self.bug);
            }
            Action::End { attempt } => state.attempts.0[usize::from(attempt)].end(),
            Action::TooLate { attempt } => {
                let attempt = &mut state.attempts.0[usize::from(attempt)];
                (attempt.first, attempt.confirms) = (0, 0);
            }
            Action::Expire { master } => state.masters[usize::from(master)].lease = None,
            Action::Heal { attempt, master } => {
                let token = state.attempts.0[usize::from(attempt)].holds()?;
                state.masters[usize::from(master)].heal(Lease {
                    of: attempt,
                    grant: token,
                });
            }
            Action::Wipe { master } => {
                state.wipes += 1;
                state.masters[usize::from(master)].wipe(self.bug);
            }
            Action::Probe { master } => {
                let attempts = state.attempts;
                state.masters[usize::from(master)].probe(&attempts, self.bug);
            }
            Action::Read { master, source, tie } => {
                let registers = state.masters[usize::from(source)].registers;
                state.masters[usize::from(master)].read(source.into(), registers, tie);
            }
            Action::Fallback { master, source } => {
                // Without a total loss nothing is assumed about the clock.
                let floor = source.map_or_else(
                    || state.floor_of_the_clock(),
                    |source| state.masters[usize::from(source)].registers,
                );
                state.fell_back = true;
                let found = &mut state.masters[usize::from(master)];
                found.seal = Seal::Probed {
                    waits_for: 0,
                    read: u8::MAX,
                    floor,
                };
            }
            Action::Seal { master } => {
                let found = &mut state.masters[usize::from(master)];
                let Seal::Probed { mut floor, .. } = found.seal else {
                    return None;
                };
                if self.bug == Bug::SlotsNotRestored {
                    floor.slot = Slot::default();
                }
                found.registers = floor;
                found.seal = Seal::Sealed;
                state.resealed = true;
            }
            Action::Due => state.due += 1,
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PROMISE, |_, state: &State<N>| state.broken.is_none()),
            Property::sometimes("a master is sealed again", |_, state: &State<N>| state.resealed),
            // The bounds are wide enough for these states.
            Property::sometimes("a total loss is survived", |_, state: &State<N>| {
                state.fell_back && state.masters.iter().all(Master::is_sealed)
            }),
            Property::sometimes("something is won after that", |_, state: &State<N>| {
                state.fell_back && (state.won != 0 || state.runs != [0; 2])
            }),
        ]
    }
}
