//! The script caches of the masters. As in the program, a script that ran on a connection is called by its hash there,
//! and by its text where the server has forgotten it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use redlock_core::{Transmit, TransmitId};

use crate::{
    plant::Plant,
    rate::Instant,
    scripts,
    strain::{Kind, Strain},
    world::{Call, World},
};

/// The form in which a script is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Hash,
    Source,
}

#[derive(Debug)]
pub(super) struct Caches {
    /// The scripts that each master knows.
    known: Vec<BTreeSet<&'static str>>,
    /// The scripts that ran on a connection of a candidate to a master.
    ran: BTreeSet<(usize, usize, u32, &'static str)>,
    /// The last answer on each connection of a candidate to a master.
    answers: BTreeMap<(usize, usize, u32), Instant>,
}

impl Caches {
    pub(super) fn new(masters: usize) -> Self {
        Self {
            known: vec![BTreeSet::new(); masters],
            ran: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    pub(super) fn flush(&mut self, of: Range<usize>) {
        self.known[of].iter_mut().for_each(BTreeSet::clear);
    }
}

impl World {
    fn caches(&mut self) -> Option<&mut Caches> {
        let forgets = |strain: &&mut Strain| strain.has(Kind::ScriptsForgotten);
        self.strain
            .as_mut()
            .filter(forgets)
            .map(|strain| &mut strain.caches)
    }

    /// Returns the form in which a candidate sends this call first.
    pub(crate) fn text(&mut self, candidate: usize, transmit: &Transmit) -> Text {
        let script = transmit.payload.script().name;
        let on = (candidate, transmit.id.master, transmit.connection.0, script);
        match self.caches() {
            Some(caches) if caches.ran.contains(&on) => Text::Hash,
            _ => Text::Source,
        }
    }

    /// Reports whether the master can run the script of a call, and caches it if so.
    pub(crate) fn knows_script(&mut self, transmit: &Transmit, text: Text) -> bool {
        let (master, script) = (transmit.id.master, transmit.payload.script().name);
        self.caches().is_none_or(|caches| match text {
            Text::Hash => caches.known[master].contains(script),
            Text::Source => {
                caches.known[master].insert(script);
                true
            }
        })
    }

    /// Records that a script ran on a connection.
    pub(crate) fn script_ran(
        &mut self,
        candidate: usize,
        (id, connection): (TransmitId, u32),
        script: &'static str,
    ) {
        if let Some(caches) = self.caches() {
            caches.ran.insert((candidate, id.master, connection, script));
        }
    }

    /// Returns the time at which an answer arrives that would arrive at `at` alone. A call that is sent again runs after
    /// those that were sent behind it, so an undo settles a master only because answers keep their order.
    pub(crate) fn in_order(&mut self, on: (usize, usize, u32), at: Instant) -> Instant {
        if self.planted.model == Plant::AnswersOvertake {
            return at;
        }
        self.caches().map_or(at, |caches| {
            let last = caches.answers.entry(on).or_default();
            *last = at.max(*last + 1);
            *last
        })
    }

    /// Sends a call again with the text of its script, on the same connection and before its deadline alone.
    pub(crate) fn send_text(
        &mut self,
        (candidate, connection): (usize, u32),
        transmit: Box<Transmit>,
        deadline: Instant,
    ) {
        let id = transmit.id;
        if self.candidates[candidate].may_repeat(self.now, id, connection) {
            self.count("script sent with its text");
            let text = Text::Source;
            let call = Call::Script {
                transmit,
                deadline,
                text,
            };
            return self.dispatch(candidate, (id.master, connection), call);
        }
        let error = Err(scripts::no_script());
        let (_, out) = self.candidates[candidate].on_reply(self.now, (id, connection), error, &mut self.rng);
        self.carry(candidate, out);
    }

    /// Lets every master forget its scripts, and returns whether this world is about that.
    pub(crate) fn flush_scripts(&mut self) -> bool {
        let all = 0..self.masters.len();
        self.caches().map(|caches| caches.flush(all)).is_some()
    }
}
