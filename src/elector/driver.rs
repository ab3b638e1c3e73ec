//! The elector's task.

mod slot;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError},
};

use tokio::sync::mpsc;

use super::{Board, Command, Watcher};
use crate::{
    clock,
    lease::{Action, Event, HolderIdentity, LockName, Machine, Moment, Round, Terms},
    masters::{Call, Closed, Delivery, Masters, Notice, Notices, Request, Tenure},
};
use slot::{Slot, outcome};

/// Deliveries taken in one turn; between turns, timers and orders get their chance.
const AT_ONCE: usize = 1024;

#[derive(Debug)]
struct Pending {
    lock: LockName,
    round: u64,
    started: Moment,
}

/// See the module above.
pub(super) struct Driver {
    masters: Masters,
    holder: HolderIdentity,
    watcher: Arc<dyn Watcher>,
    board: Board,
    slots: HashMap<LockName, Slot>,
    timers: BTreeSet<(Moment, LockName)>,
    pending: HashMap<u64, Pending>,
    next_tag: u64,
    deliveries: mpsc::UnboundedSender<(u64, Delivery)>,
    delivered: mpsc::UnboundedReceiver<(u64, Delivery)>,
    voting: bool,
    closing: bool,
}

impl Driver {
    pub(super) fn new(
        masters: Masters,
        holder: HolderIdentity,
        watcher: Arc<dyn Watcher>,
        board: Board,
    ) -> Self {
        let (deliveries, delivered) = mpsc::unbounded_channel();
        Self {
            masters,
            holder,
            watcher,
            board,
            slots: HashMap::new(),
            timers: BTreeSet::new(),
            pending: HashMap::new(),
            next_tag: 0,
            deliveries,
            delivered,
            voting: false,
            closing: false,
        }
    }

    /// Ends when all is given up after `Shutdown`, when every handle is gone, or when the masters are.
    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Command>,
        mut notices: Notices,
    ) -> Result<(), Closed> {
        let mut arrived = Vec::with_capacity(AT_ONCE);
        while !(self.closing && self.slots.is_empty()) {
            let next = self.timers.first().map(|(moment, _)| *moment);
            tokio::select! {
                // Timers first: after a pause, what has run out is said before anything else is done.
                biased;
                () = clock::sleep_until(next.unwrap_or(Moment::NEVER)), if next.is_some() => self.on_timers()?,
                order = orders.recv(), if !self.closing => self.on_order(order.unwrap_or(Command::Shutdown))?,
                _ = self.delivered.recv_many(&mut arrived, AT_ONCE) => {
                    for (tag, delivery) in arrived.drain(..) {
                        self.on_delivery(tag, delivery)?;
                    }
                }
                notice = notices.recv() => self.on_notice(notice.ok_or(Closed)?)?,
            }
        }
        Ok(())
    }

    fn on_timers(&mut self) -> Result<(), Closed> {
        let now = clock::now();
        while let Some((due, lock)) = self.timers.first().cloned() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            if let Some(slot) = self.slots.get_mut(&lock) {
                slot.timer = None;
            }
            self.event(&lock, Event::TimerFired)?;
        }
        Ok(())
    }

    fn on_order(&mut self, order: Command) -> Result<(), Closed> {
        match order {
            Command::Put(lock, terms) => self.put(&lock, terms),
            Command::Remove(lock) => {
                if let Some(slot) = self.slots.get_mut(&lock) {
                    slot.again = None;
                }
                self.event(&lock, Event::Shutdown)
            }
            Command::StepDown(lock, abstain) => self.event(&lock, Event::StepDown { abstain }),
            Command::HandOver(lock, to) => self.event(&lock, Event::HandOver { to }),
            Command::Ping(asked) => {
                // Whoever asked may have given up.
                let _ = asked.send(());
                Ok(())
            }
            Command::Shutdown => {
                self.closing = true;
                let locks: Vec<LockName> = self.slots.keys().cloned().collect();
                for lock in locks {
                    if let Some(slot) = self.slots.get_mut(&lock) {
                        slot.again = None;
                    }
                    self.event(&lock, Event::Shutdown)?;
                }
                Ok(())
            }
        }
    }

    fn put(&mut self, lock: &LockName, terms: Terms) -> Result<(), Closed> {
        match self.slots.get_mut(lock) {
            // Being given up: contend again once that is done.
            Some(slot) if slot.leaving => {
                slot.again = Some(terms);
                Ok(())
            }
            Some(slot) if *slot.machine.terms() == terms => Ok(()),
            Some(slot) => {
                slot.publish(|standing| standing.participation = terms.participation);
                self.event(lock, Event::SpecChanged(terms))
            }
            None => {
                let keys = self.masters.lock(lock);
                let machine = Machine::new(terms, self.masters.size().majority());
                let (slot, standing) = Slot::new(keys, machine);
                self.slots.insert(lock.clone(), slot);
                self.board
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(lock.clone(), standing);
                self.event(lock, Event::TimerFired)
            }
        }
    }

    fn on_notice(&mut self, notice: Notice) -> Result<(), Closed> {
        match notice {
            Notice::Released { master, lock } => self.event(&lock, Event::Released { master }),
            Notice::VotersChanged => {
                let voting = self.masters.voters() >= self.masters.size().majority();
                if voting && !std::mem::replace(&mut self.voting, voting) {
                    let locks: Vec<LockName> = self.slots.keys().cloned().collect();
                    for lock in locks {
                        self.event(&lock, Event::QuorumBack)?;
                    }
                }
                self.voting = voting;
                Ok(())
            }
        }
    }

    fn on_delivery(&mut self, tag: u64, delivery: Delivery) -> Result<(), Closed> {
        let Some(pending) = self.pending.remove(&tag) else {
            return Ok(());
        };
        let now = clock::now();
        let Some(slot) = self.slots.get(&pending.lock) else {
            return Ok(());
        };
        slot.count(
            self.watcher.as_ref(),
            &pending.lock,
            &delivery,
            pending.started,
            now,
        );
        let Some(outcome) = outcome(delivery, slot.ending_by_reserve) else {
            return Ok(());
        };
        self.event(
            &pending.lock,
            Event::RoundFinished {
                id: pending.round,
                outcome,
            },
        )
    }

    /// Gives one event to the machine of a lock and carries out what it answers.
    fn event(&mut self, lock: &LockName, event: Event) -> Result<(), Closed> {
        let Some(slot) = self.slots.get_mut(lock) else {
            return Ok(());
        };
        if matches!(event, Event::Shutdown) {
            slot.leaving = true;
        }
        let actions = slot.machine.handle(clock::now(), fastrand::u64(..), event);
        for action in actions {
            self.act(lock, action)?;
        }
        Ok(())
    }

    fn act(&mut self, lock: &LockName, action: Action) -> Result<(), Closed> {
        let Some(slot) = self.slots.get_mut(lock) else {
            return Ok(());
        };
        match action {
            Action::StartRound { id, round } => return self.start(lock, id, round),
            Action::SleepUntil(moment) => {
                if let Some(before) = slot.timer.replace(moment) {
                    self.timers.remove(&(before, lock.clone()));
                }
                self.timers.insert((moment, lock.clone()));
            }
            Action::PublishActive { authority, won } => {
                slot.on_active(self.watcher.as_ref(), lock, authority, won)
            }
            Action::PublishStandby { ended, holder } => {
                slot.on_standby(self.watcher.as_ref(), lock, ended, holder)
            }
            Action::Stopped => self.on_stopped(lock)?,
        }
        Ok(())
    }

    fn on_stopped(&mut self, lock: &LockName) -> Result<(), Closed> {
        let Some(slot) = self.slots.remove(lock) else {
            return Ok(());
        };
        if let Some(moment) = slot.timer {
            self.timers.remove(&(moment, lock.clone()));
        }
        self.board
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(lock);
        match slot.again {
            Some(terms) => self.put(lock, terms),
            None => Ok(()),
        }
    }

    fn start(&mut self, lock: &LockName, id: u64, round: Round) -> Result<(), Closed> {
        let Some(slot) = self.slots.get_mut(lock) else {
            return Ok(());
        };
        slot.ending_by_reserve = matches!(round, Round::Reserve { .. });
        let request = match (round, slot.tenure.clone()) {
            (Round::Acquire { lease_duration }, _) => {
                let longest = self.masters.fingerprint().longest_lease();
                let tenure = Arc::new(Tenure::new(self.masters.stem(&self.holder), longest));
                slot.tenure = Some(tenure.clone());
                Request::Acquire {
                    tenure,
                    lease_duration,
                }
            }
            (
                Round::Renew {
                    lease_duration,
                    token,
                },
                Some(tenure),
            ) => Request::Renew {
                tenure,
                token,
                lease_duration,
            },
            (Round::Release, Some(tenure)) => Request::Release { tenure },
            (Round::Reserve { cluster }, Some(tenure)) => Request::Reserve { tenure, cluster },
            // Without a tenure nothing was ever sent: looking is all that is left to do.
            (Round::Observe, _) | (_, None) => Request::Observe,
        };
        self.next_tag += 1;
        let pending = Pending {
            lock: lock.clone(),
            round: id,
            started: clock::now(),
        };
        self.pending.insert(self.next_tag, pending);
        self.masters.submit(Call::tagged(
            slot.keys.clone(),
            request,
            self.next_tag,
            self.deliveries.clone(),
        ))
    }
}
