//! Wraps an engine or a machine and records its calls, if there is a trace.

use std::{ops::Deref, time::Duration};

use super::{Record, Step, Trace, text};
use crate::{
    Action, Admission, BootInstant, Config, Engine, Event, FencingToken, Input, LockName, Machine,
    MasterFacts, Output, QuorumId, Reply, Terms, Unknown,
    engine::{Call, Finished},
    seal::Remembered,
};

/// A value that only recorded calls can change.
#[derive(Debug)]
pub struct Recorded<T> {
    inner: T,
    tape: Option<Tape>,
}

/// The trace, and the id of the engine or machine in it.
#[derive(Debug)]
struct Tape {
    trace: Trace,
    of: u64,
}

impl Tape {
    fn new(trace: &Trace, step: Step) -> Self {
        let (trace, of) = (trace.clone(), trace.id());
        let tape = Self { trace, of };
        tape.write(BootInstant::default(), step, None);
        tape
    }

    fn write(&self, now: BootInstant, step: Step, out: Option<String>) {
        let of = self.of;
        self.trace.write(&Record { now, of, step, out });
    }
}

impl<T> Deref for Recorded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for Recorded<T> {
    fn drop(&mut self) {
        if let Some(tape) = &self.tape {
            tape.write(BootInstant::default(), Step::End, None);
        }
    }
}

impl Recorded<Engine> {
    #[must_use]
    pub fn new(config: Config, trace: Option<&Trace>) -> Self {
        Self {
            tape: trace.map(|trace| Tape::new(trace, Step::Engine(Box::new(config.clone())))),
            inner: Engine::new(config),
        }
    }

    /// See [`Engine::handle`].
    pub fn handle(&mut self, input: Input, now: BootInstant) {
        if let Some(tape) = &self.tape {
            tape.write(now, Step::Handle(Box::new(input.clone())), None);
        }
        self.inner.handle(input, now);
    }

    /// See [`Engine::poll`].
    pub fn poll(&mut self, now: BootInstant) -> Option<Output> {
        let output = self.inner.poll(now);
        if let Some(tape) = &self.tape {
            let out = text::polled(output.as_ref(), &self.inner);
            tape.write(now, Step::Poll, Some(out));
        }
        output
    }

    /// See [`Engine::begin_call`].
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
        let call = self.inner.begin_call(master, admission, timeout, now);
        if let Some(tape) = &self.tape {
            let step = Step::BeginCall {
                master,
                admission,
                timeout,
            };
            tape.write(now, step, Some(text::begun(&call)));
        }
        call
    }

    /// See [`Engine::finish_call`].
    pub fn finish_call(
        &mut self,
        master: usize,
        call: &Call,
        result: Result<Reply, Unknown>,
        now: BootInstant,
    ) -> Finished {
        let Some(tape) = &self.tape else {
            return self.inner.finish_call(master, call, result, now);
        };
        let step = Step::FinishCall {
            master,
            call: *call,
            result: result.clone(),
        };
        let finished = self.inner.finish_call(master, call, result, now);
        tape.write(now, step, Some(text::finished(&finished)));
        finished
    }

    /// See [`Engine::recall_retirement`].
    pub fn recall_retirement(&mut self, master: usize, call: &Call, facts: &mut MasterFacts) {
        let before = self.tape.as_ref().map(|_| facts.clone());
        self.inner.recall_retirement(master, call, facts);
        if let Some((tape, before)) = self.tape.as_ref().zip(before) {
            let step = Step::RecallRetirement {
                master,
                call: *call,
                facts: Box::new(before),
            };
            tape.write(BootInstant::default(), step, Some(text::recalled(facts)));
        }
    }

    /// See [`Engine::set_drawn`].
    pub fn set_drawn(&mut self, id: QuorumId) {
        self.inner.set_drawn(id.clone());
        if let Some(tape) = &self.tape {
            let out = text::drawn(&self.inner);
            tape.write(BootInstant::default(), Step::SetDrawn(id), Some(out));
        }
    }

    /// See [`Engine::remember`].
    pub fn remember(&mut self, token: FencingToken, unix_time: Duration) -> Remembered {
        let remembered = self.inner.remember(token, unix_time);
        if let Some(tape) = &self.tape {
            let step = Step::Remember { token, unix_time };
            tape.write(BootInstant::default(), step, Some(text::remembered(remembered)));
        }
        remembered
    }
}

impl Recorded<Machine> {
    #[must_use]
    pub fn new(lock: &LockName, terms: Terms, majority: usize, trace: Option<&Trace>) -> Self {
        let step = |terms: &Terms| Step::Machine {
            lock: lock.clone(),
            terms: Box::new(terms.clone()),
            majority,
        };
        Self {
            tape: trace.map(|trace| Tape::new(trace, step(&terms))),
            inner: Machine::new(terms, majority),
        }
    }

    /// See [`Machine::handle`].
    #[must_use]
    pub fn handle(&mut self, now: BootInstant, entropy: u64, event: Event) -> Vec<Action> {
        let Some(tape) = &self.tape else {
            return self.inner.handle(now, entropy, event);
        };
        let step = Step::Event {
            entropy,
            event: Box::new(event.clone()),
        };
        let actions = self.inner.handle(now, entropy, event);
        tape.write(now, step, text::actions(&actions));
        actions
    }
}
