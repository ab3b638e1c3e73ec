//! Decides whether a script call to one master may be sent, and whether its reply counts.

use std::time::Duration;

use super::{ConnectionId, Engine, Output};
use crate::{
    Admission, BootInstant, Ineligible, Judgement, Reply, Sample, Unknown, planted::Plant, reply::Code,
};

/// The limit of batch calls under way to one master. A healthy master never reaches it; further calls to a
/// hung master would only use memory.
const UNDER_WAY: usize = 256;

/// A call that may be sent. [`Engine::finish_call`] takes it back with the result.
#[derive(Clone, Copy, Debug)]
#[must_use = "the engine learns from the result of a call"]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Call {
    pub connection: ConnectionId,
    /// Microseconds of the master's clock. Before that clock is known, 0, which is too late for every script.
    pub not_after: u64,
    pub timeout: Duration,
    admission: Admission,
    /// The number of the server that was this master.
    pub(super) server: u32,
    pub(super) sent: BootInstant,
}

/// The result of a call.
#[derive(Debug)]
pub struct Finished {
    pub reply: Result<Reply, Unknown>,
    /// The reply, if only a clock step makes its votes unknown. Its refusals to renew still count, because
    /// they can only end authority (P-93).
    pub doubted: Option<Reply>,
}

impl Engine {
    /// Begins a call outside of a batch, such as a poll or a seal.
    ///
    /// # Errors
    /// Returns an error with the reason if the master may not be asked.
    pub fn begin_call(
        &mut self,
        master: usize,
        admission: Admission,
        timeout: Duration,
        now: BootInstant,
    ) -> Result<Call, Unknown> {
        let connection = self.admitted(master, admission, now)?;
        let not_after = match self.clocks.not_after(master, now, timeout) {
            Some(_) if self.plant.is(Plant::CallsWithoutEnd) => u64::MAX,
            known => known.unwrap_or(0),
        };
        Ok(Call {
            connection,
            not_after,
            timeout,
            admission,
            server: self.masters[master].server,
            sent: now,
        })
    }

    pub(super) fn begin_batch_call(
        &mut self,
        master: usize,
        admission: Admission,
        timeout: Duration,
        now: BootInstant,
    ) -> Result<Call, Unknown> {
        let call = self.begin_call(master, admission, timeout, now)?;
        let of = &mut self.masters[master];
        if of.under_way >= UNDER_WAY {
            return Err(Unknown::Congested);
        }
        of.under_way += 1;
        Ok(call)
    }

    /// Returns the connection on which the master may be asked, if all conditions of this admission hold (P-8).
    pub(super) fn admitted(
        &self,
        master: usize,
        admission: Admission,
        now: BootInstant,
    ) -> Result<ConnectionId, Unknown> {
        let of = &self.masters[master];
        let connection = of.connected()?;
        if admission == Admission::Voting {
            of.may_vote(self.clocks.distrusted(master, now), now)?;
            if self.identity.id().is_none() {
                return Err(Unknown::QuorumUnknown);
            }
        }
        Ok(connection)
    }

    /// Handles the result of a call, received at `now`: updates the clock and the silence of the master.
    pub fn finish_call(
        &mut self,
        master: usize,
        call: &Call,
        result: Result<Reply, Unknown>,
        now: BootInstant,
    ) -> Finished {
        // A deadline cut short by the limit of an attempt does not show that the master is silent (P-9).
        if matches!(result, Err(Unknown::TimedOut(_))) && call.timeout >= self.command_timeout {
            self.masters[master].silent_since(call.sent);
        }
        // A server that answers a poll with an error would answer the next poll in the same way.
        if let Err(unknown) = &result
            && (call.admission == Admission::Voting || !unknown.is_of_server())
        {
            self.outputs.push_back(Output::Poll { master });
        }
        let (reply, doubted) = self.learn_from(master, call, result, now);
        Finished { reply, doubted }
    }

    fn learn_from(
        &mut self,
        master: usize,
        call: &Call,
        result: Result<Reply, Unknown>,
        now: BootInstant,
    ) -> (Result<Reply, Unknown>, Option<Reply>) {
        let of = &mut self.masters[master];
        if call.server != of.server {
            // The vote belongs to the former server, not to the one that replaced it (P-6).
            let changed = Unknown::NotConnected("the url of the master changed".into());
            return (result.and(Err(changed)), None);
        }
        if result.as_ref().map_or_else(Unknown::is_of_server, |_| true) {
            of.answered(now);
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(unknown) => return (Err(unknown), None),
        };
        of.latency = now.since(call.sent);
        let sample = Sample {
            master: reply.time,
            sent: call.sent,
            received: now,
        };
        let step = self.judge_clock(master, sample);
        if reply.code == Code::Ok {
            self.note_counter(master, reply.counter, call.admission, now);
        }
        // The vote that shows a step was given by the clock that stepped. Votes requested before the master became
        // ineligible for another reason do not count either (P-93).
        let ineligible = self.masters[master].ineligible(self.clocks.distrusted(master, now));
        if call.admission == Admission::Voting && (step.is_some() || ineligible.is_some()) {
            let of_a_clock = matches!(ineligible, None | Some(Ineligible::ClockStep(_)));
            let usable = of_a_clock && reply.code == Code::Ok && !self.plant.is(Plant::MastersBlamed);
            let doubted = usable.then_some(reply);
            let ineligible = ineligible.map(|reason| Unknown::Ineligible(reason.to_string()));
            return (Err(ineligible.or(step).unwrap_or(Unknown::LocalClock)), doubted);
        }
        let unknown = match reply.code {
            Code::Ok | Code::Other(_) => return (Ok(reply), None),
            Code::Unsealed => Unknown::NotSealed,
            Code::Foreign => Unknown::OtherFingerprint,
            Code::Late => return (Err(Unknown::TooLate), None),
        };
        self.outputs.push_back(Output::Poll { master });
        (Err(unknown), None)
    }

    /// Returns the reason why the votes of a reply do not count, if it shows that a clock stepped.
    fn judge_clock(&mut self, master: usize, sample: Sample) -> Option<Unknown> {
        match self.clocks.sample(master, sample) {
            Judgement::Steady => return None,
            Judgement::Explained => {}
            Judgement::MasterStepped => self.outputs.push_back(Output::MasterStepped { master }),
            Judgement::EitherStepped => {
                self.local_steps += 1;
                self.outputs.push_back(Output::MasterStepped { master });
                self.outputs.push_back(Output::LocalClockStepped);
            }
            Judgement::LocalStepped if self.plant.is(Plant::MastersBlamed) => {}
            Judgement::LocalStepped => {
                // The step is counted before the reply that shows it has any effect.
                self.local_steps += 1;
                self.outputs.push_back(Output::LocalClockStepped);
            }
        }
        Some(Unknown::LocalClock)
    }
}
