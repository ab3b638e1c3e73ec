//! Five real masters, sealed.

use std::time::Duration;

use redlock_client::{
    elector::{Elector, LockView},
    masters::{Masters, MastersConfig, Notices, Tasks},
};
use redlock_core::{ClusterId, HolderIdentity, LockName, Participation, Terms, Timings};
use redlock_testkit::{RedisServers, ServerOptions};
use tokio::sync::watch;

pub struct Quorum {
    pub servers: RedisServers,
    pub masters: Masters,
    tasks: Tasks,
}

impl Quorum {
    pub async fn start(count: usize) -> Self {
        let servers = RedisServers::start(count, &ServerOptions::default()).expect("redis-server starts");
        let (masters, _, tasks) = open(&servers);
        redlock_client::masters::init(&masters)
            .await
            .expect("new masters can be sealed");
        eventually_voting(&masters, count).await;
        Self {
            servers,
            masters,
            tasks,
        }
    }

    pub async fn close(self) {
        self.tasks.close().await;
    }
}

/// Opens the masters as another process: the masters cannot distinguish the two.
pub fn open(servers: &RedisServers) -> (Masters, Notices, Tasks) {
    let config = MastersConfig {
        reseal: false,
        ..MastersConfig::new(servers.urls())
    };
    Masters::open(&config, None).expect("the configuration is valid")
}

pub async fn eventually_voting(masters: &Masters, count: usize) {
    for _ in 0..500 {
        if masters.voters() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "{} of {count} masters vote: {:#?}",
        masters.voters(),
        masters.status()
    );
}

/// The elector's task takes up a lock a moment after it was put.
pub async fn watch(elector: &Elector, name: &str) -> watch::Receiver<LockView> {
    loop {
        match elector.watch(&lock(name)) {
            Some(view) => return view,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

pub fn holder(name: &str) -> HolderIdentity {
    HolderIdentity::parse(name).unwrap()
}

pub fn lock(name: &str) -> LockName {
    LockName::parse(name).unwrap()
}

/// The terms of a lock without targets.
pub fn contend(timings: Timings) -> Terms {
    Terms {
        cluster: ClusterId::default(),
        timings,
        participation: Participation::Contend,
        ordered_delay: Duration::ZERO,
        guards: false,
        siblings_first: false,
        fenced: false,
    }
}
