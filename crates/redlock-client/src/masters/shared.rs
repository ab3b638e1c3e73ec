//! Shares the engine of one quorum between the tasks that connect to its masters.

use std::{
    sync::{Mutex, PoisonError},
    task::Waker,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use redlock_core::{BootInstant, Config, Engine, Input, ObservedEnds, trace::Recorded};
use tokio::sync::{mpsc, watch};

use super::driver::Carried;
use crate::{clock, trace};

/// Feeds the engine from several tasks. One of them, the driver, carries out the outputs of the engine.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    engine: Mutex<Recorded<Engine>>,
    observed_ends: Mutex<ObservedEnds>,
    /// The number of steps of the local clock.
    local_steps: watch::Sender<u64>,
    /// Wakes the driver when the engine has an output.
    wake: AtomicWaker,
    /// Whether the driver carries out the outputs of this engine. Otherwise they are discarded.
    driven: bool,
    /// Passes connections to the driver of the quorum.
    connections: mpsc::UnboundedSender<Carried>,
}

impl Shared {
    /// Returns the engine for a driver that carries these connections.
    pub(crate) fn new(config: Config, connections: mpsc::UnboundedSender<Carried>) -> Self {
        Self::with(config, true, connections)
    }

    fn with(config: Config, driven: bool, connections: mpsc::UnboundedSender<Carried>) -> Self {
        Self {
            observed_ends: Mutex::default(),
            engine: Mutex::new(Recorded::<Engine>::new(config.clone(), trace::current())),
            config,
            local_steps: watch::Sender::new(0),
            wake: AtomicWaker::new(),
            driven,
            connections,
        }
    }

    /// Returns an engine for a separate connection, which does not affect the quorum. The driver carries that
    /// connection, which may later replace one of the quorum.
    pub(crate) fn apart(&self) -> Self {
        let config = Config {
            quorum: self.read(|engine, _| engine.identity().id().cloned()),
            command_timeout: self.command_timeout(),
            ..self.config.clone()
        };
        Self::with(config, false, self.connections.clone())
    }

    /// Reads the engine. Its mutex is a leaf: no other mutex is locked while it is held.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Engine, BootInstant) -> T) -> T {
        // No code that panics runs under this lock; a poisoned one still holds consistent values.
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        read(&engine, clock::now())
    }

    /// Changes the ends of leases that attempts without an elector observed. This mutex is a leaf, too.
    pub(crate) fn with_observed_ends<T>(
        &self,
        change: impl FnOnce(&mut ObservedEnds, BootInstant) -> T,
    ) -> T {
        let mut ends = self.observed_ends.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut ends, clock::now())
    }

    /// Changes the engine and wakes the driver if there is an output.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Recorded<Engine>, BootInstant) -> T) -> T {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut engine, clock::now());
        self.publish_steps(&engine);
        if !self.driven {
            while engine.poll(clock::now()).is_some() {}
        } else if engine.has_output() {
            self.wake.wake();
        }
        result
    }

    /// Changes the engine for the driver, which polls the engine before it waits again.
    pub(super) fn drive<T>(&self, change: impl FnOnce(&mut Recorded<Engine>, BootInstant) -> T) -> T {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut engine, clock::now());
        self.publish_steps(&engine);
        result
    }

    /// Publishes clock steps before the input that shows a step has any other effect.
    fn publish_steps(&self, engine: &Engine) {
        let steps = engine.local_steps();
        if *self.local_steps.borrow() != steps {
            self.local_steps.send_replace(steps);
        }
    }

    pub(crate) fn handle(&self, input: Input) {
        self.update(|engine, now| engine.handle(input, now));
    }

    /// Registers the driver to be woken when another task has fed the engine, or when the driver is to end.
    pub(super) fn register(&self, driver: &Waker) {
        self.wake.register(driver);
    }

    pub(super) fn wake_driver(&self) {
        self.wake.wake();
    }

    /// Passes a connection to the driver; returns it if the driver has ended.
    pub(super) fn carry(&self, connection: Carried) -> Result<(), Carried> {
        self.connections.send(connection).map_err(|refused| refused.0)
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

#[cfg(test)]
pub(super) mod tests {
    use std::future::ready;

    use redlock_core::{ClusterId, Command, Keyspace, LockName, QuorumSize, Request, RequestId};

    use super::*;

    pub(in crate::masters) fn config() -> Config {
        Config {
            size: QuorumSize::new(3).unwrap(),
            fingerprint: "f".into(),
            quorum: None,
            keys: Keyspace::new("p"),
            cluster: ClusterId::new("a", "b").unwrap(),
            longest_lease: Duration::from_secs(60),
            acquire_limit: Duration::from_secs(2),
            command_timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn the_driver_shares_a_connection_but_not_the_output_of_its_engine() {
        let (connections, mut to_carry) = mpsc::unbounded_channel();
        let quorum = Shared::new(config(), connections);
        let beside = quorum.apart();
        assert!(beside.carry(Box::pin(ready(()))).is_ok());
        assert!(to_carry.try_recv().is_ok());

        let request = || {
            Input::Request(Request {
                id: RequestId(1),
                lock: Keyspace::new("p").lock(&LockName::internal("test", "lock").unwrap()),
                command: Command::Observe,
            })
        };
        beside.handle(request());
        quorum.handle(request());
        let outputs = |shared: &Shared| shared.drive(|engine, now| engine.poll(now).is_some());
        assert_eq!((outputs(&beside), outputs(&quorum)), (false, true));

        drop(to_carry);
        assert!(beside.carry(Box::pin(ready(()))).is_err());
    }
}
