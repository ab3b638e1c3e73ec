//! The engine of one quorum, shared by the tasks that connect to its masters.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redlock_core::{Config, Engine, Input, Moment, trace::Recorded};
use tokio::sync::{Notify, watch};

use crate::{clock, trace};

/// Feeds the engine from several tasks. One of them, the driver, carries out what the engine returns.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    engine: Mutex<Recorded<Engine>>,
    /// How often the local clock stepped.
    local_steps: watch::Sender<u64>,
    /// Rings when the engine has something for the driver.
    wake: Notify,
    /// Without a driver nothing is carried out.
    driven: bool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            engine: Mutex::new(Recorded::<Engine>::new(config.clone(), trace::current())),
            config,
            local_steps: watch::Sender::new(0),
            wake: Notify::new(),
            driven: true,
        }
    }

    /// An engine for a connection of its own, of which nothing counts for the quorum.
    pub(crate) fn apart(&self) -> Self {
        let config = Config {
            quorum: self.read(|engine, _| engine.identity().id().cloned()),
            command_timeout: self.command_timeout(),
            ..self.config.clone()
        };
        Self {
            driven: false,
            ..Self::new(config)
        }
    }

    /// The lock is a leaf: no other lock is taken under it.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Engine, Moment) -> T) -> T {
        // Nothing that panics runs under this lock; a poisoned one still holds consistent values.
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        read(&engine, clock::now())
    }

    /// Changes the engine and wakes the driver if that leads to anything.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Recorded<Engine>, Moment) -> T) -> T {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut engine, clock::now());
        self.publish_steps(&engine);
        if !self.driven {
            while engine.poll(clock::now()).is_some() {}
        } else if engine.has_output() {
            self.wake.notify_one();
        }
        result
    }

    /// The same for the driver, which polls the engine before it waits again.
    pub(super) fn drive<T>(&self, change: impl FnOnce(&mut Recorded<Engine>, Moment) -> T) -> T {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut engine, clock::now());
        self.publish_steps(&engine);
        result
    }

    /// Before the input that shows a step leads to anything.
    fn publish_steps(&self, engine: &Engine) {
        let steps = engine.local_steps();
        if *self.local_steps.borrow() != steps {
            self.local_steps.send_replace(steps);
        }
    }

    pub(crate) fn handle(&self, input: Input) {
        self.update(|engine, now| engine.handle(input, now));
    }

    /// Waits until another task fed the engine.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.read(|engine, _| engine.command_timeout())
    }

    pub(crate) fn local_steps(&self) -> u64 {
        *self.local_steps.borrow()
    }

    pub(crate) fn watch_clock(&self) -> watch::Receiver<u64> {
        self.local_steps.subscribe()
    }
}
