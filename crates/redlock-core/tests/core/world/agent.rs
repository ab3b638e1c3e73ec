//! The nodes of each cluster: an agent that reads the masters, and pods that run by its permits.

use std::time::Duration;

use redlock_core::{
    BootInstant, ClusterId, FencingToken, Obstacle, QuorumSize, Sample,
    fence::{ClockWatch, FenceMark, Input, Left, MarkRegister, Observation, Pace, Presence, Reading, Watch},
};

use super::{COMMAND_TIMEOUT, SHORT, What, World, nanos, pod::Pod};
use crate::{
    plant::Plant,
    planted::Planted,
    rate::{Instant, MS, Rate},
    scripts::mark_text,
};

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) cluster: ClusterId,
    pub(super) clock: Rate,
    pub(super) size: QuorumSize,
    pub(super) planted: Planted,
    pub(super) watch: Watch,
    pub(super) clocks: ClockWatch,
    round: u64,
    observation: Option<Observation>,
    /// The masters that the agent does not reach.
    pub(crate) cut: Vec<bool>,
    pub(super) pods: Vec<Pod>,
    /// The times at which objects of pods were deleted by force.
    pub(super) forced: Vec<Instant>,
    pub(super) next: u64,
}

/// An event on a node.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A round begins.
    Round,
    Asks {
        round: u64,
        master: usize,
        sent: BootInstant,
    },
    Receives {
        round: u64,
        master: usize,
        sent: BootInstant,
        reading: Box<Reading>,
    },
    Ends {
        round: u64,
    },
    Wake {
        pod: u64,
    },
    /// The API server shows whether the object of the pod exists.
    Shown {
        pod: u64,
        presence: Presence,
        asked: BootInstant,
    },
    Stored {
        pod: u64,
    },
    Empty {
        pod: u64,
    },
    /// The kubelet calls again.
    Call {
        pod: u64,
    },
    /// The kubelet publishes a pod, or a user deletes one.
    Publish,
    /// No node and no candidate of the cluster reaches a master any more.
    CutOff,
}

impl Agent {
    pub(crate) fn new(cluster: &str, clock: Rate, size: QuorumSize, planted: Planted) -> Self {
        let cluster = ClusterId::new(cluster, cluster).unwrap();
        Self {
            watch: Watch::new(cluster.clone()),
            cluster,
            clock,
            size,
            planted,
            clocks: ClockWatch::new(size),
            round: 0,
            observation: None,
            cut: vec![false; size.masters()],
            pods: Vec::new(),
            forced: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.pods.iter().any(|pod| pod.runs)
    }

    /// Removes every pod that has an object: all its containers are reported as terminated.
    pub(crate) fn delete_all(&mut self) {
        self.pods.retain(|pod| pod.forced);
    }

    pub(super) fn pod(&mut self, number: u64) -> Option<&mut Pod> {
        self.pods.iter_mut().find(|pod| pod.number == number)
    }

    /// Applies a planted fault to a reading.
    fn planted(&self, mut reading: Reading) -> Reading {
        match (&reading.lease, self.planted.model) {
            // A lease of the own cluster counts, marked or not.
            (Some((Obstacle::Lease(lease), left)), Plant::UnmarkedCounted)
                if lease.cluster.uid() == self.cluster.uid() =>
            {
                reading.reservation = Some((self.cluster.to_string(), *left));
            }
            // The lease gives a permit, too, before the holder marks it.
            (Some((Obstacle::Lease(lease), _)), Plant::PermitBeforeMark)
                if lease.cluster.uid() == self.cluster.uid() =>
            {
                let token = FencingToken(lease.grant);
                let mark = FenceMark::new(token, token, &self.cluster, lease.nonce);
                reading.mark = MarkRegister::Marked(mark.unwrap()).merged(reading.mark);
            }
            _ => {}
        }
        reading
    }
}

impl World {
    pub(crate) fn agents_begin(&mut self) {
        for agent in 0..self.agents.len() {
            self.on_node(self.now, agent, Step::Round);
            self.on_node(self.now, agent, Step::Publish);
        }
    }

    pub(super) fn on_node(&mut self, at: Instant, agent: usize, step: Step) {
        self.at(at, What::Node { agent, step });
    }

    pub(super) fn node(&mut self, agent: usize, step: Step) {
        match step {
            Step::Round => self.begin_round(agent),
            Step::Asks { round, master, sent } => self.agent_asks(agent, round, (master, sent)),
            Step::Receives {
                round,
                master,
                sent,
                reading,
            } => self.agent_receives(agent, round, (master, sent), *reading),
            Step::Ends { round } => self.end_round(agent, round),
            Step::Wake { pod } => self.input(agent, pod, Input::Timer),
            Step::Shown { pod, presence, asked } => {
                self.input(agent, pod, Input::Pod { presence, asked });
            }
            Step::Stored { pod } => self.input(agent, pod, Input::Stored),
            Step::Empty { pod } => {
                let (populated, frozen) = (false, true);
                self.input(agent, pod, Input::Cgroup { populated, frozen });
            }
            Step::Call { pod } => self.input(agent, pod, Input::Published),
            Step::Publish => self.publish_pod(agent),
            Step::CutOff => self.cut_off(agent, true),
        }
    }

    fn begin_round(&mut self, agent: usize) {
        let of = &mut self.agents[agent];
        of.round += 1;
        let (round, sent) = (of.round, of.clock.moment(self.now));
        of.observation = Some(Observation::new(of.size, sent));
        let ends = of.clock.instant(sent + COMMAND_TIMEOUT);
        for master in 0..self.masters.len() {
            if !self.agents[agent].cut[master] && self.rng.f64() >= self.weather.loss {
                let at = self.now + self.delay();
                self.on_node(at, agent, Step::Asks { round, master, sent });
            }
        }
        self.on_node(ends, agent, Step::Ends { round });
    }

    fn agent_asks(&mut self, agent: usize, round: u64, (master, sent): (usize, BootInstant)) {
        let silent = self.down[master] || self.hung[master].is_some() || !self.masters[master].sealed;
        if silent || self.agents[agent].cut[master] || self.rng.f64() < self.weather.loss {
            return;
        }
        let server = &self.masters[master];
        let left = |nanos: u64| Left::For(Duration::from_millis(nanos / MS - 1));
        let lease = server.lease(self.now).cloned();
        let reserved = server.reservation(self.now).map(str::to_owned);
        let reading = Reading {
            time: server.micros(self.now),
            // Set when the agent receives the reading.
            received: BootInstant::default(),
            lease: lease.map(|value| (Obstacle::Lease(value), left(server.left(self.now)))),
            reservation: reserved.map(|text| (text, left(server.reserved_left(self.now)))),
            held: server.registers.held.max(server.registers.held_floor),
            mark: MarkRegister::parse(&mark_text(&server.registers.mark)).unwrap(),
            delay: server.registers.delay,
            closed: redlock_core::FencingToken(server.registers.closed),
        };
        let (at, reading) = (self.now + self.delay(), Box::new(reading));
        let step = Step::Receives {
            round,
            master,
            sent,
            reading,
        };
        self.on_node(at, agent, step);
    }

    fn agent_receives(
        &mut self,
        agent: usize,
        round: u64,
        (master, sent): (usize, BootInstant),
        reading: Reading,
    ) {
        let of = &mut self.agents[agent];
        let reading = Reading {
            received: of.clock.moment(self.now),
            ..of.planted(reading)
        };
        let Some(observation) = of.observation.as_mut().filter(|_| of.round == round) else {
            return;
        };
        debug_assert_eq!(observation.sent(), sent);
        observation.record(master, reading);
        if observation.complete() {
            self.end_round(agent, round);
        }
    }

    fn end_round(&mut self, agent: usize, round: u64) {
        let of = &mut self.agents[agent];
        if of.round != round {
            return;
        }
        let Some(observation) = of.observation.take() else {
            return;
        };
        let (now, sent) = (of.clock.moment(self.now), observation.sent());
        let sample = |reading: &Reading| Sample {
            master: reading.time,
            sent,
            received: reading.received,
        };
        let samples = observation
            .readings()
            .map(|(master, reading)| (master, sample(reading)));
        let stood_still = of.clocks.on_round(samples);
        let finding = of.watch.on_round(&observation, stood_still, now);
        if self.trace {
            println!("              node {agent}: {finding:?}");
        }
        let pods: Vec<u64> = of.pods.iter().map(|pod| pod.number).collect();
        for pod in pods {
            self.input(agent, pod, Input::Round(finding.clone()));
        }
        let of = &self.agents[agent];
        let pace = Pace {
            lease_duration: SHORT.lease_duration,
            retry_period: SHORT.retry_period,
        };
        let next = pace.next(sent, of.pods.iter().map(|pod| &pod.record));
        let at = of.clock.instant(next).max(self.now + MS);
        self.on_node(at, agent, Step::Round);
    }

    /// Marks the pods that were started in other clusters as outdated.
    pub(super) fn outdate_pods(&mut self, candidate: usize) {
        if self.is_excused(candidate) {
            return;
        }
        let uid = self.candidates[candidate].cluster.uid();
        for agent in &mut self.agents {
            if agent.cluster.uid() != uid {
                agent.pods.iter_mut().for_each(|pod| pod.outdated = true);
            }
        }
    }

    /// Checks S8: no pod of a cluster runs while a holder of another cluster may start targets.
    pub(crate) fn check_pods(&mut self) {
        let outdated = |agent: &&Agent| agent.pods.iter().any(|pod| pod.runs && pod.outdated);
        if let Some(agent) = self.agents.iter().find(outdated) {
            let how = format!(
                "a pod of {} from before another cluster began runs",
                agent.cluster
            );
            self.checks.fail("lineage", self.now, how);
        }
        let Some((starts, token)) = self.starter() else {
            return;
        };
        let cluster = self.candidates[starts].cluster.uid();
        let other = |agent: &&Agent| agent.cluster.uid() != cluster && agent.runs();
        if let Some(agent) = self.agents.iter().find(other) {
            let how = format!(
                "a pod of {} runs, and {starts} of {cluster} may start under {token}",
                agent.cluster
            );
            self.checks.fail("S8", self.now, how);
        }
    }

    /// Returns the candidate that may start targets, and its token.
    pub(crate) fn starter(&self) -> Option<(usize, u64)> {
        let all = self.candidates.iter().zip(&self.may_start).enumerate();
        all.filter_map(|(candidate, (of, marked))| {
            let token = of.authority(self.now)?.token.0;
            (*marked == Some(token) && !self.is_excused(candidate)).then_some((candidate, token))
        })
        .next()
    }
}

pub(super) fn agents(world: &mut World) -> Vec<Agent> {
    let mut clock = || Rate {
        offset: 1_000_000 * MS + world.rng.u64(..1_000_000 * MS),
        parts_per_million: world.rng.i64(-4_500..=4_500),
    };
    let clocks = [clock(), clock()];
    let agents = ["east", "west"].into_iter().zip(clocks);
    agents
        .map(|(cluster, clock)| Agent::new(cluster, clock, world.size, world.planted))
        .collect()
}

/// The delay that a holder declares, and the least wait of a new holder if no delay was declared.
pub(crate) const DELAY: Duration = Duration::from_millis(200);

pub(crate) fn longer(clock: &Rate, now: Instant, delay: Duration) -> Instant {
    clock
        .instant(clock.moment(now) + delay)
        .max(now + nanos(delay) / 2)
}
