//! The actions of a holder of a fenced lock on its targets, as the operator takes them: it waits for the
//! takeover delay, marks, starts, and stops cleanly before it gives the lock back.

use redlock_core::{
    ClusterId, Event, Mark, Marks, ReleaseMode,
    fence::{Predecessor, Succession},
};

use super::{
    What, World,
    agent::{DELAY, longer},
};
use crate::rate::MS;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The takeover delay is over.
    Start,
    /// A planned stop begins.
    Close,
    /// The list of pods was read after starts were forbidden: all are gone.
    Gone,
}

impl World {
    /// Handles a win. A sibling adopts at once; after a clean end no pod runs.
    pub(super) fn on_won_fenced(
        &mut self,
        candidate: usize,
        token: u64,
        (marks, succession): (Marks, Succession),
    ) {
        self.may_start[candidate] = None;
        self.lineages.won(candidate, token, (marks, succession));
        if succession.predecessor == Predecessor::Unknown {
            self.count("win after an unknown holder");
        }
        if self.lineages.begins(candidate) {
            self.delete_running_by_force(candidate);
        }
        let at = if succession.is_sibling() {
            self.count("adoption");
            self.now
        } else if marks.ended_uncleanly() {
            self.count("takeover after an unclean end");
            let delay = marks.declared_delay().unwrap_or(DELAY).max(DELAY);
            longer(&self.candidates[candidate].clock, self.now, delay)
        } else {
            self.count("takeover after a clean end");
            self.now
        };
        let late = [0, 50, 600][self.rng.usize(..3)];
        let late = self.rng.u64(..=late * MS);
        self.later(candidate, token, at + late, Step::Start);
        // The holder may be asked to leave before it marks its lease.
        if late > 0 && self.rng.u32(..8) == 0 {
            let abstain = std::time::Duration::from_millis(500);
            let to = self.agents[candidate % 2].cluster.clone();
            let leave = match self.rng.bool() {
                true => Event::StepDown { abstain },
                false => Event::HandOver { to, token: None },
            };
            self.notify(candidate, leave);
        }
    }

    fn later(&mut self, candidate: usize, token: u64, at: u64, step: Step) {
        let life = self.candidates[candidate].life;
        let what = What::Targets {
            candidate,
            life,
            token,
            step,
        };
        self.at(at, what);
    }

    pub(super) fn targets(&mut self, candidate: usize, token: u64, step: Step) {
        if self.paused[candidate] > self.now || self.token_held(candidate) != Some(token) {
            return;
        }
        let mark = match step {
            Step::Start => {
                let planted = self.planted.model;
                self.lineages.starts(candidate, token, planted, self.now);
                Mark::Held { delay: DELAY }
            }
            Step::Close => Mark::Closed,
            Step::Gone => {
                self.stop_pods(candidate);
                if !self.may_confirm(candidate, token) {
                    return self.count("stop that could not be confirmed");
                }
                Mark::Clean
            }
        };
        let out = self.candidates[candidate].mark(self.now, mark, &mut self.rng);
        self.carry(candidate, out);
    }

    fn token_held(&self, candidate: usize) -> Option<u64> {
        Some(self.candidates[candidate].authority(self.now)?.token.0)
    }

    fn stop_pods(&mut self, candidate: usize) {
        let uid = self.candidates[candidate].cluster.uid().to_owned();
        for agent in 0..self.agents.len() {
            if self.agents[agent].cluster.uid() == uid {
                self.agents[agent].delete_all();
                // A pod that a user starts meanwhile.
                self.add_pod(agent);
            }
        }
    }

    pub(super) fn on_marked_fenced(&mut self, candidate: usize, token: u64, mark: Mark) {
        if self.token_held(candidate) != Some(token) {
            return;
        }
        match mark {
            Mark::Held { .. } => {
                self.count("holder may start");
                self.may_start[candidate] = Some(token);
                self.outdate_pods(candidate);
                let within = match self.rng.u32(..6) {
                    0 | 1 => Some(3_000),
                    2.. if self.lineages.begins(candidate) => Some(100),
                    _ => None,
                };
                if let Some(within) = within {
                    let at = self.now + self.rng.u64(..within) * MS;
                    self.later(candidate, token, at, Step::Close);
                }
            }
            Mark::Closed => {
                let at = self.now + self.rng.u64(..100) * MS;
                self.later(candidate, token, at, Step::Gone);
            }
            Mark::Clean => {
                self.count("confirmed stop");
                if self.rng.bool() {
                    let to = ["east", "west"][self.rng.usize(..2)];
                    let to = ClusterId::new(to, to).unwrap();
                    self.notify(candidate, Event::HandOver { to, token: None });
                }
            }
        }
    }

    /// Cuts off a whole cluster, its nodes and its candidates, or reconnects it. Masters may lose their
    /// memory meanwhile.
    pub(super) fn cut_off(&mut self, agent: usize, cut: bool) {
        self.count("cluster cut off");
        self.agents[agent].cut.fill(cut);
        for candidate in (0..self.candidates.len()).filter(|c| c % 2 == agent) {
            self.cut[candidate].fill(cut);
        }
        if cut && self.total_losses && self.rng.bool() {
            for master in 0..self.masters.len() {
                if self.hung[master].is_none() && !self.down[master] {
                    self.lose_memory(master);
                }
            }
        }
    }

    /// Cuts off a node and gives its holder an order. Soon after, no candidate of that cluster is reached.
    fn abandon(&mut self, agent: usize) {
        self.count("abandoned node");
        self.agents[agent].cut.fill(true);
        let own = self.agents[agent].cluster.clone();
        let holds = |c: &usize| c % 2 == agent && self.token_held(*c).is_some();
        let holder = (0..self.candidates.len()).find(holds);
        let event = match self.rng.u32(..4) {
            0 => Some(Event::StepDown {
                abstain: std::time::Duration::from_secs(2),
            }),
            1 => Some(Event::HandOver { to: own, token: None }),
            2 => Some(Event::Shutdown(ReleaseMode::Reserve)),
            _ => None,
        };
        if let (Some(holder), Some(event)) = (holder, event) {
            self.notify(holder, event);
        }
        let at = self.now + self.rng.u64(1..100) * MS;
        self.on_node(at, agent, super::agent::Step::CutOff);
    }

    /// Injects a fault of a node.
    pub(crate) fn node_fault(&mut self, master: usize) {
        let agent = self.rng.usize(..self.agents.len());
        match self.rng.u32(..12) {
            0 => self.agents[agent].cut[master] ^= true,
            1 => {
                self.count("agent cut off");
                let cut = self.rng.u32(..3) == 0;
                self.agents[agent].cut.fill(cut);
            }
            2 => self.restart_agent(agent),
            3 => {
                let cut = self.rng.u32(..3) == 0;
                self.cut_off(agent, cut);
            }
            4 => self.abandon(agent),
            5 => self.mark_on_a_minority(agent, master),
            6..=8 if self.total_losses => self.seal_with_later_floor(master),
            _ => {}
        }
    }

    /// Lets a holder of the other cluster reach one master alone, which the node does not reach, before it
    /// marks its lease.
    fn mark_on_a_minority(&mut self, agent: usize, master: usize) {
        let mut others = (0..self.candidates.len()).filter(|c| c % 2 != agent);
        let unmarked = |c: &usize| self.token_held(*c).is_some() && self.may_start[*c].is_none();
        if let Some(holder) = others.find(unmarked) {
            self.count("mark on a minority");
            self.cut[holder].fill(true);
            self.cut[holder][master] = false;
            self.agents[agent].cut[master] = true;
        }
    }

    /// Treats the master as the last one to be sealed after a total loss, later than the first win: its floor
    /// is above the token of that win. The lease and its mark have been repeated there since.
    fn seal_with_later_floor(&mut self, master: usize) {
        let marks = self.masters.iter().map(|master| master.registers.mark.0);
        let (last, server) = (marks.max().unwrap_or_default(), &mut self.masters[master]);
        if last > 0 && server.sealed && server.registers.mark.0 == last {
            let floor = &mut server.registers.held_floor;
            *floor = (*floor).max(last + 1);
            server.registers.counter = server.registers.counter.max(*floor);
            self.count("later floor");
        }
    }
}
