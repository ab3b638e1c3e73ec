//! The Redis masters of a quorum: servers in memory that run the Lua scripts as they ship.
//!
//! A master has its own clock, and the states and faults of a server. Its commands are those that the scripts and the
//! client use, with the semantics of Redis 7.

mod clock;
mod commands;
mod database;
mod inspection;
mod resp;
mod script;
mod server;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fastrand::Rng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    clock::Clock,
    database::{Database, Process},
};
pub use self::{
    database::WriteRefusal,
    inspection::{Found, LockOnMasters},
    resp::Reply,
};
use crate::network::{Network, Party};

/// The port of every master.
pub const PORT: u16 = 6379;

/// The masters of one quorum; clones share them.
#[derive(Clone, Debug)]
pub struct Masters(Vec<Master>);

impl Masters {
    /// Starts masters without data. Each name is the name of its party and its host. Call it in the runtime of the
    /// world, where the virtual clocks are installed.
    ///
    /// # Panics
    ///
    /// Panics if a master with one of the names listens already.
    #[must_use]
    pub fn start(network: &Network, names: &[&str], seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let start = |name: &&str| Master::start(network.party(name), rng.fork());
        Self(names.iter().map(start).collect())
    }

    /// Returns the urls of the masters, in the order of their names at the start.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(Master::url).collect()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Master> {
        self.0.iter()
    }

    /// # Panics
    ///
    /// Panics if there is no master with this index.
    #[must_use]
    pub fn get(&self, index: usize) -> &Master {
        &self.0[index]
    }
}

/// One master; clones share it.
#[derive(Clone, Debug)]
pub struct Master(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    party: Party,
    state: Mutex<State>,
    /// Whether commands are handled.
    handles: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    clock: Clock,
    database: Database,
    delay: Duration,
    password: Option<String>,
    /// The number of the last connection.
    connection: u64,
    /// Cancelled when the process is killed; `None` while it does not run.
    process: Option<CancellationToken>,
}

impl Master {
    fn start(party: Party, mut rng: Rng) -> Self {
        let database = Database::new(Process::draw(&mut rng));
        let master = Self(Arc::new(Shared {
            party,
            state: Mutex::new(State {
                rng,
                clock: Clock::new(),
                database,
                delay: Duration::ZERO,
                password: None,
                connection: 0,
                process: None,
            }),
            handles: watch::Sender::new(true),
        }));
        master.run();
        master
    }

    /// Starts the process of the server.
    fn run(&self) {
        let listener = self.0.party.listen(self.name(), PORT).unwrap();
        let killed = CancellationToken::new();
        self.state().process = Some(killed.clone());
        tokio::spawn(server::serve(self.clone(), listener, killed));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    #[must_use]
    pub fn name(&self) -> &str {
        self.0.party.name()
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}:{PORT}", self.name())
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state().process.is_some()
    }

    /// Stops to handle commands, as by SIGSTOP: connections are accepted and stay open.
    pub fn pause(&self) {
        self.0.handles.send_replace(false);
    }

    /// Handles the commands that arrived during a pause, and all later ones.
    pub fn resume(&self) {
        self.0.handles.send_replace(true);
    }

    /// Ends the process, which closes all connections.
    pub fn kill(&self) {
        if let Some(process) = self.state().process.take() {
            process.cancel();
        }
    }

    /// Starts a process with another run_id and the same data. Kills the former one.
    pub async fn restart(&self) {
        self.kill();
        while self.0.party.listens(self.name(), PORT) {
            tokio::task::yield_now().await;
        }
        let mut state = self.state();
        let process = Process::draw(&mut state.rng);
        state.database.restart(process);
        drop(state);
        self.resume();
        self.run();
    }

    /// Starts a process without data. Kills the former one.
    pub async fn restart_empty(&self) {
        self.kill();
        self.flush();
        self.restart().await;
    }

    /// Deletes all keys.
    pub fn flush(&self) {
        self.state().database.flush();
    }

    /// Steps the wall clock. The time of all keys to live changes with it, as in Redis.
    pub fn step_clock(&self, microseconds: i64) {
        self.state().clock.step(microseconds);
    }

    /// Sets by how many parts per million the clock is too fast.
    pub fn set_drift(&self, parts_per_million: i64) {
        self.state().clock.set_drift(parts_per_million);
    }

    /// Delays every command.
    pub fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Sets whether writes are refused, and for which reason.
    pub fn refuse_writes(&self, refusal: Option<WriteRefusal>) {
        self.state().database.refusal = refusal;
    }

    /// Sets the password of new connections; `None` requires none.
    pub fn set_password(&self, password: Option<&str>) {
        self.state().password = password.map(str::to_owned);
    }

    /// Executes a command at once, without a connection.
    pub fn execute(&self, command: &[&str]) -> Reply {
        let command: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.state().execute(&command)
    }
}

impl State {
    const fn next_connection(&mut self) -> u64 {
        self.connection += 1;
        self.connection
    }

    fn execute(&mut self, command: &[Vec<u8>]) -> Reply {
        self.database.now = self.clock.microseconds();
        script::execute(&mut self.database, command)
    }
}

#[cfg(test)]
mod tests;
