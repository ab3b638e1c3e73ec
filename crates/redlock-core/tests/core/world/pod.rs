//! Pods of a fenced lock on the node of an agent.

use redlock_core::{
    BootInstant,
    fence::{ClockWatch, Effect, Input, Presence, Record, State, Stored, Watch},
};

use super::{World, agent::Step};
use crate::rate::MS;

/// The longest delay with which an agent or its guardian writes a freeze. A freeze is due 500 ms before the end
/// of a permit.
const LATEST: u64 = 495 * MS;
/// Number of pods of one node.
const PODS: usize = 2;

#[derive(Debug)]
pub(crate) struct Pod {
    pub(super) number: u64,
    pub(super) record: Record,
    /// The entry in the table.
    pub(super) stored: Option<Stored>,
    /// Whether the kubelet has started its containers, in a frozen cgroup or not.
    started: bool,
    /// Whether its containers execute.
    pub(super) runs: bool,
    /// Whether a holder of another cluster may have started targets since its containers started.
    pub(super) outdated: bool,
    /// Whether its containers are dead: the next ones start afresh.
    pub(super) killed: bool,
    /// Whether its object was deleted by force.
    pub(super) forced: bool,
    /// Whether the kubelet does not reach its API server: it starts containers again without an object.
    pub(super) unaware: bool,
}

impl Pod {
    /// Reports whether the pod has started containers that are not dead, and has an object.
    fn may_be_forced(&self) -> bool {
        self.started && !self.killed && !self.forced
    }
}

impl World {
    /// Gives one input to the record of a pod, and carries out its effects.
    pub(super) fn input(&mut self, agent: usize, pod: u64, input: Input) {
        let of = &mut self.agents[agent];
        let (now, clock) = (of.clock.moment(self.now), of.clock);
        let Some(found) = of.pod(pod) else { return };
        let effects = found.record.handle(input, now);
        let wake = found.record.next_wake();
        for effect in effects {
            self.effect(agent, pod, &effect);
        }
        if wake != BootInstant::NEVER {
            let at = clock.instant(wake).max(self.now) + self.rng.u64(..LATEST);
            self.on_node(at, agent, Step::Wake { pod });
        }
    }

    fn effect(&mut self, agent: usize, number: u64, effect: &Effect) {
        if self.trace {
            println!("              node {agent}, pod {number}: {effect:?}");
        }
        let soon = self.now + self.rng.u64(..20 * MS);
        let Some(pod) = self.agents[agent].pod(number) else {
            return;
        };
        let ran = pod.runs;
        match effect {
            Effect::Freeze => pod.runs = false,
            Effect::Thaw => {
                pod.outdated &= !std::mem::take(&mut pod.killed);
                pod.runs = pod.started;
            }
            // A kubelet that knows of no object starts no container again.
            Effect::Kill if pod.forced && !pod.unaware => {
                self.agents[agent].pods.retain(|pod| pod.number != number)
            }
            Effect::Kill => {
                (pod.runs, pod.killed) = (false, true);
                self.on_node(soon, agent, Step::Empty { pod: number });
                self.count("pod killed");
            }
            Effect::ConfirmPod => {
                let presence = if pod.forced {
                    Presence::Gone
                } else {
                    Presence::Exists
                };
                let presence = if self.rng.u32(..8) == 0 {
                    Presence::Unknown
                } else {
                    presence
                };
                let asked = self.agents[agent].clock.moment(self.now);
                let pod = number;
                self.on_node(soon, agent, Step::Shown { pod, presence, asked });
            }
            Effect::Store(_) | Effect::StoreKilled(_) => {
                pod.stored = Some(match effect {
                    Effect::Store(run) => Stored::Run(*run),
                    _ => Stored::Killed {
                        seen: pod.record.seen(),
                    },
                });
                if matches!(pod.record.state(), State::Storing { .. }) {
                    self.on_node(soon, agent, Step::Stored { pod: number });
                }
            }
            // No administrator takes part.
            Effect::StoreReleased(_) => {}
            Effect::AnswerPublish(Ok(())) => {
                pod.outdated &= pod.started;
                (pod.started, pod.runs) = (true, matches!(pod.record.state(), State::Running(_)));
                self.count("pod started");
            }
            Effect::AnswerPublish(Err(_)) => self.agents[agent].pods.retain(|pod| pod.number != number),
        }
        if ran && matches!(effect, Effect::Freeze) {
            self.count("pod frozen");
        }
    }

    /// Publishes or deletes a pod at any time, whether or not the cluster holds the lock.
    pub(super) fn publish_pod(&mut self, agent: usize) {
        let pick = self.rng.usize(..40);
        let pods = &mut self.agents[agent].pods;
        if pods.iter().filter(|pod| !pod.forced).count() < PODS {
            self.add_pod(agent);
        } else if pick < PODS && !pods[pick].forced {
            pods.remove(pick);
        } else if (PODS..2 * PODS).contains(&pick) && pods[pick - PODS].may_be_forced() {
            self.delete_by_force(agent, pick - PODS);
        }
        let at = self.now + self.rng.u64(50..400) * MS;
        self.on_node(at, agent, Step::Publish);
    }

    pub(super) fn add_pod(&mut self, agent: usize) {
        let of = &mut self.agents[agent];
        of.next += 1;
        let mut record = Record::new(of.clock.moment(self.now));
        record.plant(of.planted.code);
        of.pods.push(Pod {
            number: of.next,
            record,
            stored: None,
            started: false,
            runs: false,
            outdated: false,
            killed: false,
            forced: false,
            unaware: false,
        });
    }

    /// Restarts the agent, which knows each pod by its entry in the table.
    pub(crate) fn restart_agent(&mut self, agent: usize) {
        self.count("restart of an agent");
        let of = &mut self.agents[agent];
        let now = of.clock.moment(self.now);
        of.watch = Watch::new(of.cluster.clone());
        of.clocks = ClockWatch::new(of.size);
        let (code, mut woken) = (of.planted.code, Vec::new());
        // The kubelet calls again for a pod that was not started.
        of.pods.retain(|pod| pod.stored.is_some());
        for pod in &mut of.pods {
            pod.record = Record::restored(pod.stored.unwrap_or(Stored::Unknown), now);
            pod.record.plant(code);
            woken.push((pod.number, of.clock.instant(pod.record.next_wake())));
        }
        for (pod, at) in woken {
            let at = at.max(self.now) + self.rng.u64(..LATEST);
            self.on_node(at, agent, Step::Wake { pod });
        }
        self.call_again(agent);
    }

    /// The kubelet got no answer from the former agent: it publishes the volume of a known pod again.
    fn call_again(&mut self, agent: usize) {
        let waits = |pod: &&Pod| !pod.started;
        let numbers: Vec<u64> = self.agents[agent]
            .pods
            .iter()
            .filter(waits)
            .map(|pod| pod.number)
            .collect();
        for pod in numbers {
            let at = self.now + self.rng.u64(..1_000) * MS;
            self.on_node(at, agent, Step::Call { pod });
        }
    }
}
