//! Applies a read of the object of a pod to its record.

use super::{Effect, Origin, Presence, Record, Refusal, State};
use crate::BootInstant;

impl Record {
    pub(super) fn on_pod(
        &mut self,
        presence: Presence,
        asked: BootInstant,
        now: BootInstant,
        out: &mut Vec<Effect>,
    ) {
        let State::Confirming { run, origin, since } = self.state else {
            return;
        };
        // The answer to an earlier request does not show that the holder of this lineage knows the pod (P-118).
        if asked < since {
            return;
        }
        match (presence, origin) {
            (Presence::Exists, _) => self.store(run, origin, out),
            // A UID never returns: no later round starts the pod.
            (Presence::Gone, Origin::Publish { .. }) => {
                out.push(Effect::AnswerPublish(Err(Refusal::PodGone)));
                self.state = State::Refused;
            }
            (Presence::Gone, Origin::Kill { .. }) => self.back_to(origin, Refusal::PodGone, now, out),
            (Presence::Unknown, _) => self.back_to(origin, Refusal::PodUnknown, now, out),
        }
    }
}
