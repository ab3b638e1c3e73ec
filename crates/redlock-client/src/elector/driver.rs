//! The elector's task.

mod slot;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, PoisonError},
};

use tokio::sync::{mpsc, oneshot, watch};

use super::{Board, Command, LockView, Watcher};
use crate::{
    clock::{self, Alarm},
    lease::{
        Action, BootInstant, Event, FencingToken, HolderIdentity, LockName, Loss, Machine, Mark, ReleaseMode,
        Round, Terms, trace::Recorded,
    },
    masters::{self, Call, Closed, Completion, LeaseAttempt, Masters, Notice, Notices},
    trace,
};
use slot::Slot;

/// Maximum number of deliveries taken in one turn; timers and orders are handled between turns.
const AT_ONCE: usize = 1024;

/// The index of a lock in `slots`. Names are hashed and compared when they arrive, not at every event.
type Place = u32;

#[derive(Debug)]
struct Pending {
    place: Place,
    /// The generation of the slot, which may be reused before the delivery arrives.
    generation: u64,
    round: u64,
    started: BootInstant,
}

/// The task described in the module documentation.
pub(super) struct Driver {
    masters: Masters,
    holder: HolderIdentity,
    watcher: Arc<dyn Watcher>,
    board: Board,
    slots: Vec<Option<Slot>>,
    free: Vec<Place>,
    places: HashMap<LockName, Place>,
    timers: BTreeSet<(BootInstant, Place)>,
    pending: HashMap<u64, Pending>,
    next_tag: u64,
    next_generation: u64,
    deliveries: mpsc::UnboundedSender<(u64, Completion)>,
    delivered: mpsc::UnboundedReceiver<(u64, Completion)>,
    clock: watch::Receiver<u64>,
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
        let clock = masters.watch_clock();
        Self {
            masters,
            holder,
            watcher,
            board,
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            timers: BTreeSet::new(),
            pending: HashMap::new(),
            next_tag: 0,
            next_generation: 0,
            deliveries,
            delivered,
            clock,
            voting: false,
            closing: false,
        }
    }

    /// Runs until all locks are given up after `Shutdown` or the loss of every handle, or until the masters
    /// are gone.
    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Command>,
        mut notices: Notices,
    ) -> Result<(), Closed> {
        let mut arrived = Vec::with_capacity(AT_ONCE);
        let mut alarm = Alarm::open();
        while !(self.closing && self.places.is_empty()) {
            let next = self.timers.first().map(|(moment, _)| *moment);
            tokio::select! {
                // Timers first: after a pause, an expired lease is reported before any other work. Then the
                // clock: a delivery that was timed before a clock step does not count.
                biased;
                () = alarm.sleep_until(next.unwrap_or(BootInstant::NEVER)), if next.is_some() => self.on_timers()?,
                Ok(()) = self.clock.changed() => self.on_clock_step()?,
                order = orders.recv(), if !self.closing => self.on_order(order.unwrap_or_else(|| Command::Shutdown(HashSet::new())))?,
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

    fn slot(&mut self, place: Place) -> Option<&mut Slot> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    /// Returns the places of all locks, in an order that does not depend on their hashes.
    fn all(&self) -> Vec<Place> {
        let mut all: Vec<Place> = self.places.values().copied().collect();
        all.sort_unstable();
        all
    }

    fn on_timers(&mut self) -> Result<(), Closed> {
        let now = clock::now();
        while let Some((due, place)) = self.timers.first().copied() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            if let Some(slot) = self.slot(place) {
                slot.timer = None;
            }
            self.event(place, Event::TimerFired)?;
        }
        Ok(())
    }

    fn on_clock_step(&mut self) -> Result<(), Closed> {
        self.all().into_iter().try_for_each(|place| {
            if let Some(slot) = self.slot(place) {
                // Includes a lease that was already lost: its machine no longer publishes an end.
                slot.publish(LockView::clock_stepped);
            }
            self.event(place, Event::ClockStepped)
        })
    }

    fn on_order(&mut self, order: Command) -> Result<(), Closed> {
        match order {
            Command::Put(lock, terms) => self.put(&lock, terms),
            Command::Remove(lock, release_mode) => self.leave(self.places.get(&lock).copied(), release_mode),
            Command::StepDown(lock, abstain) => self.named(&lock, Event::StepDown { abstain }),
            Command::HandOver(lock, to, token) => self.named(&lock, Event::HandOver { to, token }),
            Command::Mark(lock, token, mark, asked) => self.mark(&lock, (token, mark), asked),
            Command::Ask(lock, request, asked) => {
                let keys = self.masters.lock(&lock);
                self.masters.submit(Call::asking(keys, request, asked))
            }
            Command::Ping(asked) => {
                // The caller may have stopped waiting.
                let _ = asked.send(());
                Ok(())
            }
            Command::Shutdown(reserve) => {
                self.closing = true;
                self.all().into_iter().try_for_each(|place| {
                    let reserved = self.slot(place).is_some_and(|slot| reserve.contains(&slot.lock));
                    let release_mode = if reserved {
                        ReleaseMode::Reserve
                    } else {
                        ReleaseMode::Release
                    };
                    self.leave(Some(place), release_mode)
                })
            }
        }
    }

    fn put(&mut self, lock: &LockName, terms: Terms) -> Result<(), Closed> {
        let Some(place) = self.places.get(lock).copied() else {
            return self.enter(lock, terms);
        };
        let Some(slot) = self.slot(place) else {
            return Ok(());
        };
        if slot.leaving {
            // The lock is being given up; the task contends again afterwards.
            slot.again = Some(terms);
            return Ok(());
        }
        if *slot.machine.terms() == terms {
            return Ok(());
        }
        slot.publish(|view| view.participation = terms.participation);
        self.event(place, Event::SpecChanged(terms))
    }

    fn enter(&mut self, lock: &LockName, terms: Terms) -> Result<(), Closed> {
        let keys = self.masters.lock(lock);
        let majority = self.masters.size().majority();
        let machine = Recorded::<Machine>::new(lock, terms, majority, trace::current());
        self.next_generation += 1;
        let (slot, view) = Slot::new(lock.clone(), self.next_generation, keys, machine);
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Place::try_from(self.slots.len() - 1).unwrap_or(Place::MAX)
        });
        self.slots[place as usize] = Some(slot);
        self.places.insert(lock.clone(), place);
        self.board
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(lock.clone(), view);
        self.event(place, Event::TimerFired)
    }

    /// Sends the mark to the masters without the state machine, because a mark does not change the holder.
    /// The mark counts for this lease only, not for the next one. After the first mark of a fenced lease, the
    /// machine renews.
    fn mark(
        &mut self,
        lock: &LockName,
        (token, mark): (FencingToken, Mark),
        asked: oneshot::Sender<bool>,
    ) -> Result<(), Closed> {
        let place = self.places.get(lock).copied();
        let Some(slot) = place.and_then(|place| self.slot(place)) else {
            return Ok(());
        };
        let authority = slot.machine.authority_at(clock::now());
        let authority = authority.filter(|authority| authority.token == token);
        let (Some(_), Some(attempt)) = (authority, slot.attempt.clone()) else {
            return Ok(());
        };
        let is_first = attempt.is_first(mark);
        let command = masters::Command::Mark { attempt, token, mark };
        let keys = slot.keys.clone();
        self.masters.submit(Call::answering(keys, command, asked))?;
        match place {
            Some(place) if is_first => self.event(place, Event::Marked),
            _ => Ok(()),
        }
    }

    fn leave(&mut self, place: Option<Place>, release_mode: ReleaseMode) -> Result<(), Closed> {
        let Some(place) = place else { return Ok(()) };
        if let Some(slot) = self.slot(place) {
            slot.again = None;
            slot.leaving = true;
        }
        self.event(place, Event::Shutdown(release_mode))
    }

    fn on_notice(&mut self, notice: Notice) -> Result<(), Closed> {
        match notice {
            Notice::Released { master, lock } => self.named(&lock, Event::Released { master }),
            Notice::SealedForAnother => self
                .all()
                .into_iter()
                .try_for_each(|place| self.event(place, Event::SealedForAnother)),
            Notice::VotersChanged => {
                let voting = self.masters.voters() >= self.masters.size().majority();
                let back = voting && !self.voting;
                self.voting = voting;
                if back {
                    self.all()
                        .into_iter()
                        .try_for_each(|place| self.event(place, Event::QuorumBack))?;
                }
                Ok(())
            }
        }
    }

    fn on_delivery(&mut self, tag: u64, delivery: Completion) -> Result<(), Closed> {
        let Some(Pending {
            place,
            generation,
            round,
            started,
        }) = self.pending.remove(&tag)
        else {
            return Ok(());
        };
        let Some(Some(slot)) = self.slots.get(place as usize) else {
            return Ok(());
        };
        if slot.generation != generation {
            return Ok(());
        }
        slot.count(self.watcher.as_ref(), &delivery, started, clock::now());
        if matches!(
            delivery,
            Completion::RenewalUndecided | Completion::NotWon(Loss::NoQuorum(_))
        ) {
            // Masters also lose their votes as time passes, and no notice reports that.
            self.voting &= self.masters.voters() >= self.masters.size().majority();
        }
        let Some(outcome) = delivery.outcome(slot.ending_by_reserve) else {
            return Ok(());
        };
        self.event(place, Event::RoundFinished { id: round, outcome })
    }

    fn named(&mut self, lock: &LockName, event: Event) -> Result<(), Closed> {
        match self.places.get(lock).copied() {
            Some(place) => self.event(place, event),
            None => Ok(()),
        }
    }

    /// Gives one event to the machine of a lock and carries out the resulting actions.
    fn event(&mut self, place: Place, event: Event) -> Result<(), Closed> {
        let Some(slot) = self.slot(place) else {
            return Ok(());
        };
        let now = clock::now();
        let actions = slot.machine.handle(now, fastrand::u64(..), event);
        actions
            .into_iter()
            .try_for_each(|action| self.act(place, action, now))
    }

    fn act(&mut self, place: Place, action: Action, now: BootInstant) -> Result<(), Closed> {
        let Some(Some(slot)) = self.slots.get_mut(place as usize) else {
            return Ok(());
        };
        match action {
            Action::StartRound { id, round } => return self.start(place, id, round, now),
            Action::SleepUntil(moment) => {
                if let Some(before) = slot.timer.replace(moment) {
                    self.timers.remove(&(before, place));
                }
                self.timers.insert((moment, place));
            }
            Action::PublishActive { authority, won } => {
                slot.on_active(self.watcher.as_ref(), authority, won, now)
            }
            Action::PublishStandby { ended, holder } => slot.on_standby(self.watcher.as_ref(), ended, holder),
            Action::Stopped => self.on_stopped(place)?,
        }
        Ok(())
    }

    fn on_stopped(&mut self, place: Place) -> Result<(), Closed> {
        let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) else {
            return Ok(());
        };
        if let Some(moment) = slot.timer {
            self.timers.remove(&(moment, place));
        }
        self.free.push(place);
        self.places.remove(&slot.lock);
        self.board
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&slot.lock);
        match slot.again {
            Some(terms) => self.put(&slot.lock, terms),
            None => Ok(()),
        }
    }

    fn start(&mut self, place: Place, id: u64, round: Round, now: BootInstant) -> Result<(), Closed> {
        let Some(Some(slot)) = self.slots.get_mut(place as usize) else {
            return Ok(());
        };
        slot.ending_by_reserve = matches!(round, Round::Reserve { .. });
        if let Round::Acquire { .. } = round {
            let longest = self.masters.fingerprint().longest_lease();
            let (stem, terms) = (self.masters.stem(&self.holder), slot.machine.terms());
            slot.attempt = Some(Arc::new(if terms.fenced {
                LeaseAttempt::fenced(stem, longest, terms.cluster.clone())
            } else {
                LeaseAttempt::new(stem, longest)
            }));
        }
        let command = round.command(slot.attempt.clone());
        self.next_tag += 1;
        let pending = Pending {
            place,
            generation: slot.generation,
            round: id,
            started: now,
        };
        self.pending.insert(self.next_tag, pending);
        self.masters.submit(Call::tagged(
            slot.keys.clone(),
            command,
            self.next_tag,
            self.deliveries.clone(),
        ))
    }
}
