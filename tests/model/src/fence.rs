//! Node fencing, exhaustively within small bounds: three masters, two candidates of cluster A and one of cluster B, and
//! the agent of a node of A with one pod. S8: no pod of A runs while a holder of B may start targets.
//!
//! The decisions are those of `redlock-core`: `Observation`, `Watch` and `Record` of the node,
//! `MarkRegister`, `FencedLease` and `Marks` of the holder (`decisions.rs`). Masters, network, users and the
//! order of events are models. Time passes in ticks of 5 s. A lease is valid for two ticks, and a reservation
//! for the holder's own cluster for three; a command may be executed one tick late or never, and its reply
//! may be lost.
//!
//! Omitted, and where it is checked:
//! - *Tokens.* They are unique and rise (the other model). A win confirms its token at once.
//! - *Rounds of the agent in parts*, the guardian's acknowledgement, a second pod, and clocks that stand still: the
//!   simulation (`crates/redlock-core/tests/core/fenced.rs`) and the tests of `redlock-core`.
//! - *The delay of a freeze.* A pod is frozen 500 ms before its permit ends, in the same tick.
//! - *The takeover delay of fenced pods.* Where all pods are fenced a holder declares none, the strictest case.

mod actions;
mod bounds;
mod commands;
mod decisions;
mod exhaust;
mod planted;
mod state;
mod steps;
mod symmetry;

use stateright::{Model, Property};

use self::{
    actions::{Action, Goal, World},
    state::{Cluster, Lease, PodState, State},
};

const PROMISE: &str = "no pod of A runs beside B";
const GOAL: &str = "the goal is reached";

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::NEW]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_none() {
            self.list(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.step(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![match self.goal {
            None => Property::always(PROMISE, |_, state: &State| state.broken.is_none()),
            Some(Goal::Adoption) => Property::sometimes(GOAL, |_, state: &State| state.is_adopted()),
            Some(Goal::TakeOver) => Property::sometimes(GOAL, |_, state: &State| state.is_taken_over()),
            Some(Goal::Return) => Property::sometimes(GOAL, |_, state: &State| state.is_back()),
        }]
    }
}

impl State {
    fn is_adopted(&self) -> bool {
        let died = self
            .leases
            .iter()
            .any(|lease| lease.cluster() == Cluster::A && lease.crashed);
        matches!(self.pod.state, PodState::Running { first, token, .. } if token > first) && died
    }

    fn is_taken_over(&self) -> bool {
        let died = |candidate| {
            let of = |lease: &&Lease| lease.candidate == candidate && lease.crashed;
            self.leases.iter().any(|lease| of(&lease))
        };
        died(0) && died(1) && self.starter()
    }

    fn is_back(&self) -> bool {
        let PodState::Running { first, .. } = self.pod.state else {
            return false;
        };
        let clean = |token: u8| self.masters.iter().any(|master| master.registers.clean == token);
        let of_b = |lease: &&Lease| lease.cluster() == Cluster::B && lease.token > 0;
        let ended = self
            .leases
            .iter()
            .filter(of_b)
            .any(|lease| lease.token < first && clean(lease.token));
        ended
            && self
                .leases
                .iter()
                .filter(|lease| lease.cluster() == Cluster::A && lease.token > 0)
                .count()
                > 1
    }
}
