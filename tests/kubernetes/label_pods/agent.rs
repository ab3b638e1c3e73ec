//! A candidate that is not an operator, as in a pod or in another cluster: the elector of the library.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::Api;
use redlock::clock;
use redlock::elector::{Elector, ElectorTask, LockView, Silent};
use redlock::lease::{
    ClusterId, HolderIdentity, LockName, Mark, Participation, ReleaseMode, Terms, Timings, timing,
};
use redlock::masters::Tasks;

use crate::fixture::BOUND;
use crate::world::World;
use redlock_testkit::eventually;
use redlock_testkit::masters::{config, open};

pub struct Agent {
    elector: Elector,
    lock: LockName,
    task: ElectorTask,
    _tasks: Tasks,
}

impl Agent {
    /// Contends for a lock of this world's namespace, from this cluster.
    pub async fn start(world: &World, lock: &str, identity: &str, cluster: ClusterId) -> Self {
        let mut config = config(&world.masters);
        config.cluster = cluster.clone();
        config.longest_lease = super::LEASE;
        config.acquire_limit = timing::DEFAULT_ACQUIRE_LIMIT;
        let opened = open(&config);
        opened.voters(world.masters.len()).await;
        let identity = HolderIdentity::parse(identity).unwrap();
        let (elector, task) = Elector::start(opened.masters, opened.notices, identity, Arc::new(Silent));
        let lock = LockName::parse(&format!("{}/{lock}", world.namespace.name())).unwrap();
        let timings = Timings {
            lease_duration: super::LEASE,
            renew_deadline: Duration::from_secs(4),
            retry_period: Duration::from_millis(500),
            stop: Duration::ZERO,
        };
        elector.put(
            lock.clone(),
            Terms {
                cluster,
                timings,
                participation: Participation::Contend,
                ordered_delay: Duration::ZERO,
                guards: false,
                siblings_first: false,
                fenced: false,
            },
        );
        Self {
            elector,
            lock,
            task,
            _tasks: opened.tasks,
        }
    }

    pub async fn holds(&self) {
        eventually(BOUND, "the agent holds the lock", async || {
            let standing = self.elector.watch(&self.lock);
            let holds = |standing: LockView| standing.authority_at(clock::now()).is_some();
            match standing.map(|standing| standing.borrow().clone()) {
                Some(standing) if holds(standing.clone()) => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }

    /// Writes to the masters that nothing runs under the lease of the agent.
    pub async fn mark_clean(&self) {
        let standing = self.elector.watch(&self.lock).unwrap();
        let authority = standing.borrow().authority_at(clock::now()).unwrap();
        let mark = self.elector.mark(self.lock.clone(), authority.token, Mark::Clean);
        assert!(mark.await);
    }

    /// Releases the lock.
    pub async fn release(self) {
        self.elector.remove(self.lock.clone(), ReleaseMode::Release);
        self.elector.shut_down(Default::default());
        self.task.await.unwrap().unwrap();
    }
}

/// Returns this world's cluster, as its operator names it.
pub async fn own_cluster(world: &World) -> ClusterId {
    let namespaces = Api::<Namespace>::all(world.plane.admin());
    let system = namespaces.get("kube-system").await.unwrap();
    ClusterId::new("test", &system.uid().unwrap()).unwrap()
}
