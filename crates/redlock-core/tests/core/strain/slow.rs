//! A master that takes time: commands wait for each other, and one of them takes long, before its effect or after it.

use crate::{
    rate::{Instant, MS},
    strain::Kind,
    world::World,
};

/// The longest time of a command.
const LONGEST: Instant = 400 * MS;

/// The time of a command has its effect before it, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    AtOnce,
    EffectAt(Instant),
    /// The effect is at once.
    AnswerAt(Instant),
}

/// The commands that a master has received and not served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    slow_until: Instant,
    /// The end of the last command.
    ends: Instant,
}

impl Queue {
    pub(super) fn slow_until(&mut self, until: Instant) {
        self.slow_until = self.slow_until.max(until);
    }

    pub(super) fn calm(&mut self, now: Instant) {
        self.slow_until = self.slow_until.min(now);
    }

    fn serve(&mut self, now: Instant, rng: &mut fastrand::Rng) -> Service {
        let waits = self.ends > now;
        if !waits && self.slow_until <= now {
            return Service::AtOnce;
        }
        let takes = match rng.u32(..8) {
            // A longer queue would keep the master from voting long after the storm.
            0 if self.slow_until > now && self.ends < now + LONGEST => rng.u64(20 * MS..LONGEST),
            _ => rng.u64(MS / 20..MS),
        };
        // Commands keep their order: no two of them end at one instant.
        self.ends = self.ends.max(now) + takes;
        match waits || rng.bool() {
            true => Service::EffectAt(self.ends),
            false => Service::AnswerAt(self.ends),
        }
    }
}

impl World {
    pub(crate) fn service(&mut self, master: usize) -> Service {
        let now = self.now;
        let Some(strain) = self.strain.as_mut().filter(|strain| strain.has(Kind::Slow)) else {
            return Service::AtOnce;
        };
        let service = strain.queues[master].serve(now, &mut strain.rng);
        match service {
            Service::AtOnce => {}
            Service::EffectAt(_) => self.count("command that waits for its effect"),
            Service::AnswerAt(_) => self.count("answer that waits after the effect"),
        }
        service
    }

    /// Reports whether commands of the master wait.
    pub(crate) fn is_busy(&self, master: usize) -> bool {
        let of = |strain: &super::Strain| strain.queues[master].ends > self.now;
        self.strain.as_ref().is_some_and(of)
    }
}
