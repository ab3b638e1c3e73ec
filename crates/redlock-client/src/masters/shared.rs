//! The engine of one quorum, shared by the tasks that connect to its masters.

use std::{
    sync::{Mutex, PoisonError},
    task::Waker,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use redlock_core::{Config, Engine, Input, Moment, trace::Recorded};
use tokio::sync::{mpsc, watch};

use super::driver::Carried;
use crate::{clock, trace};

/// Feeds the engine from several tasks. One of them, the driver, carries out what the engine returns.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    engine: Mutex<Recorded<Engine>>,
    /// How often the local clock stepped.
    local_steps: watch::Sender<u64>,
    /// Of the driver, for when the engine has something for it.
    wake: AtomicWaker,
    /// To the driver. Without one nothing is carried out.
    connections: Option<mpsc::UnboundedSender<Carried>>,
}

impl Shared {
    /// For a driver that carries these connections.
    pub(crate) fn new(config: Config, connections: mpsc::UnboundedSender<Carried>) -> Self {
        Self::with(config, Some(connections))
    }

    fn with(config: Config, connections: Option<mpsc::UnboundedSender<Carried>>) -> Self {
        Self {
            engine: Mutex::new(Recorded::<Engine>::new(config.clone(), trace::current())),
            config,
            local_steps: watch::Sender::new(0),
            wake: AtomicWaker::new(),
            connections,
        }
    }

    /// An engine for a connection of its own, of which nothing counts for the quorum.
    pub(crate) fn apart(&self) -> Self {
        let config = Config {
            quorum: self.read(|engine, _| engine.identity().id().cloned()),
            command_timeout: self.command_timeout(),
            ..self.config.clone()
        };
        Self::with(config, None)
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
        if self.connections.is_none() {
            while engine.poll(clock::now()).is_some() {}
        } else if engine.has_output() {
            self.wake.wake();
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

    /// The driver is woken when another task fed the engine from now on, or when it is to end.
    pub(super) fn register(&self, driver: &Waker) {
        self.wake.register(driver);
    }

    pub(super) fn wake_driver(&self) {
        self.wake.wake();
    }

    /// Gives a connection to the driver, or back where there is none.
    pub(super) fn carry(&self, connection: Carried) -> Result<(), Carried> {
        match &self.connections {
            Some(driver) => driver.send(connection).map_err(|refused| refused.0),
            None => Err(connection),
        }
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
