//! Ends a process, as the executor does, and starts the next one.

use std::collections::HashSet;

use super::{Simulation, index, world};
use crate::controller::{
    index::{Effect, FinalizerEnd, Handed, Input, LastStatus, ObjectRequest},
    object::ObjectKey,
    sibling_answers::Round,
    status::claims,
};

impl Simulation {
    pub(super) fn end_and_start(&mut self) -> Result<(), String> {
        self.outside.log(|| "-- the process ends".to_owned());
        self.index.begin_stop(&world(&self.outside));
        self.perform()?;
        let held = self.index.held_at_end(&world(&self.outside));
        let question = self.index.last_question();
        let successors = self.outside.round(question);
        let mut handed = self.index.hand_out(&successors, &world(&self.outside));
        self.rules
            .may_end(&handed, &successors, &self.index, &self.outside)?;
        let kept = self.stop_last(&mut handed)?;
        let at = world(&self.outside);
        let last = self.index.last_statuses(&held, &kept, &successors, &at);
        self.index.dismiss_target_tasks();
        self.rules.may_release(&handed, &self.outside)?;
        self.outside.end(&handed.reserve);
        let given_up = self.given_up(&held, &kept, &successors);
        for status in last {
            self.write_last(status);
        }
        self.no_status_reports_a_lease(&given_up)?;
        self.start()
    }

    /// Stops the targets that no sibling can take over. Returns the locks whose targets could not be stopped.
    fn stop_last(&mut self, handed: &mut Handed) -> Result<HashSet<ObjectKey>, String> {
        let (mut stopped, mut kept) = (Vec::new(), HashSet::new());
        for stop in std::mem::take(&mut handed.stops) {
            if self.outside.stop_at_end(&stop.key) {
                stopped.push(stop.key);
            } else {
                handed.keep(&stop.plan);
                kept.insert(stop.key);
            }
        }
        self.index.remove_last_finalizers(&stopped, &world(&self.outside));
        for effect in self.index.take_effects() {
            self.outside.log(|| format!("-> {effect:?}"));
            let Effect::Object(ObjectRequest::SetFinalizer { key, uid, change }) = effect else {
                continue;
            };
            let end = self.outside.set_finalizer_at_end(&key, uid.as_deref(), &change);
            if matches!(&end, Ok(FinalizerEnd::Written(_) | FinalizerEnd::Unread)) {
                let end = Input::Finalizer { key, uid, end };
                self.index.handle(end, &world(&self.outside));
            }
        }
        Ok(kept)
    }

    fn write_last(&mut self, last: LastStatus) {
        self.outside.log(|| format!("-> {last:?}"));
        match last {
            LastStatus::Lock {
                key, version, status, ..
            } => {
                if !self.outside.server.down {
                    self.outside.server.write_lock(&key, &version, &status);
                }
            }
            LastStatus::Quorum {
                name,
                version,
                status,
            } if !self.outside.server.down => {
                self.outside.server.write_quorum(&name, &version, &status);
            }
            LastStatus::Quorum { .. } => {}
        }
    }

    /// Returns the locks that this process held and gives up, and whose statuses it can write.
    fn given_up(
        &self,
        held: &HashSet<ObjectKey>,
        kept: &HashSet<ObjectKey>,
        successors: &Round,
    ) -> Vec<ObjectKey> {
        let seen = successors.seen_by_siblings();
        let current = |key: &&ObjectKey| {
            let known = self.index.locks.get(key).map(|entry| &entry.object);
            let there = self.outside.server.locks.get(key);
            known.zip(there).is_some_and(|(known, there)| {
                known.metadata.resource_version == there.metadata.resource_version
                    && there.metadata.deletion_timestamp.is_none()
                    // A status without claims stays as it is.
                    && there.status.as_ref().is_some_and(claims)
                    && !seen.contains(&there.spec.quorum_ref.name)
            })
        };
        let writes = !self.outside.server.down && !self.outside.server.unserved;
        let given_up = held.difference(kept).filter(|_| writes).filter(current);
        given_up.cloned().collect()
    }

    /// Checks that the last status of a released lock names no holder, and no lease that is running out.
    fn no_status_reports_a_lease(&self, given_up: &[ObjectKey]) -> Result<(), String> {
        let reports = |key: &&ObjectKey| {
            let object = self.outside.server.locks.get(key);
            object
                .and_then(|object| object.status.as_ref())
                .is_some_and(|status| {
                    let mut conditions = status.conditions.iter();
                    let left =
                        conditions.any(|condition| condition.message.contains("stopped without a release"));
                    left || status.holder_identity.as_deref() == Some(self.outside.identity.as_str())
                })
        };
        match given_up.iter().find(reports) {
            Some(key) => Err(format!("{key}: released, and its last status reports a lease")),
            None => Ok(()),
        }
    }

    /// Starts the next process, which has no memory of the previous one.
    fn start(&mut self) -> Result<(), String> {
        self.outside.start();
        let seed = self.outside.random.u64(..);
        self.index = index(&self.outside, seed, self.index.planted);
        self.rules.start();
        Ok(())
    }
}
