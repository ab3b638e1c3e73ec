//! Electors contend over the simulated network.

use std::{sync::Arc, time::Duration};

use redlock_client::{
    clock::{self, virtual_time::passed},
    elector::{Elector, ElectorTask, LockView, Silent},
    lease::{ClusterId, HolderIdentity, LockName, Terms, timing::Timings},
    masters::{self, Credentials, MastersConfig, Secret, Tasks, Tls, init},
};
use redlock_world::{
    masters::{Masters, Reply},
    network::{Cut, Latency, Network},
    runtime::run,
};
use tokio::{sync::watch, time};

const NAMES: [&str; 3] = ["m0", "m1", "m2"];

pub(crate) struct Replica {
    pub(crate) name: &'static str,
    cluster: ClusterId,
    pub(crate) masters: masters::Masters,
    pub(crate) elector: Elector,
    _tasks: Tasks,
    _task: ElectorTask,
}

fn password(text: &str) -> Credentials {
    Credentials {
        password: Some(Secret::new(text.into())),
        ..Credentials::default()
    }
}

pub(crate) fn start(network: &Network, servers: &Masters, name: &'static str) -> Replica {
    start_with(network, servers, name, Credentials::default())
}

fn start_with(network: &Network, servers: &Masters, name: &'static str, credentials: Credentials) -> Replica {
    let (cluster, _) = name.split_once('/').unwrap();
    let cluster = ClusterId::new(cluster, &format!("uid-of-{cluster}")).unwrap();
    let config = MastersConfig {
        cluster: cluster.clone(),
        credentials,
        reseal: true,
        transport: network.party(name).transport(),
        ..MastersConfig::new(servers.urls())
    };
    let (masters, notices, tasks) = masters::Masters::open(&config, None).unwrap();
    let holder = HolderIdentity::parse(&name.replace('/', "-")).unwrap();
    let (elector, task) = Elector::start(masters.clone(), notices, holder, Arc::new(Silent));
    Replica {
        name,
        cluster,
        masters,
        elector,
        _tasks: tasks,
        _task: task,
    }
}

impl Replica {
    pub(crate) fn contend(&self, lock: &LockName) {
        let timings = Timings::derive(Duration::from_secs(2));
        let terms = Terms::of_own_work(self.cluster.clone(), timings);
        self.elector.put(lock.clone(), terms);
    }

    async fn view(&self, lock: &LockName) -> watch::Receiver<LockView> {
        // The elector's task publishes the view when it handles the order.
        assert!(self.elector.answers().await);
        self.elector.watch(lock).unwrap()
    }

    /// Waits until the replica holds the lock.
    async fn holds(&self, lock: &LockName) {
        let mut view = self.view(lock).await;
        let held = view.wait_for(|view| view.authority_at(clock::now()).is_some());
        time::timeout(Duration::from_secs(120), held)
            .await
            .expect(self.name)
            .unwrap();
    }

    async fn token(&self, lock: &LockName) -> Option<u64> {
        let view = self.view(lock).await;
        let authority = view.borrow().authority_at(clock::now());
        authority.map(|authority| authority.token.0)
    }
}

/// Runs two replicas through a cut of the holder and a restart of all masters. Returns each change of a holder.
async fn story(seed: u64) -> Vec<String> {
    let network = Network::new(seed, Latency::milliseconds(0, 3));
    let servers = Masters::start(&network, &NAMES, seed);
    let replicas = [
        start(&network, &servers, "eu/r1"),
        start(&network, &servers, "us/r1"),
    ];
    init(&replicas[0].masters).await.unwrap();
    let lock = LockName::parse("default/lock").unwrap();
    replicas.iter().for_each(|replica| replica.contend(&lock));

    let mut events = Vec::new();
    let mut before = [None, None];
    let begun = passed();
    let mut cut = None;
    while passed() - begun < Duration::from_secs(90) {
        time::sleep(Duration::from_millis(20)).await;
        let tokens = [replicas[0].token(&lock).await, replicas[1].token(&lock).await];
        assert!(tokens[0].is_none() || tokens[1].is_none(), "{events:?}");
        if tokens != before {
            let shown = servers.lock("redlock", &lock);
            events.push(format!("{:?} {tokens:?} {:?}", passed(), shown.majority()));
            before = tokens;
        }
        let holder = tokens.iter().position(Option::is_some);
        if cut.is_none() && passed() - begun > Duration::from_secs(20) {
            let holder = replicas[holder.unwrap()].name;
            NAMES.iter().for_each(|name| network.cut(holder, name, Cut::Hang));
            cut = Some(holder);
        }
        if passed() - begun > Duration::from_secs(60) {
            network.heal_all();
        }
    }
    assert!(events.len() >= 3, "{events:?}");
    events.push(format!("{:016x}", network.digest()));
    events
}

#[test]
fn the_other_replica_wins_after_the_lease_of_one_that_is_cut_off() {
    let mut all = Vec::new();
    for seed in 0..8 {
        let told = run(seed, story(seed));
        let again = run(seed, story(seed));
        assert_eq!(told, again);
        all.push(told);
    }
    assert_ne!(all[0], all[1]);
    println!("{all:#?}");
}

#[test]
fn a_master_that_restarts_empty_is_sealed_again() {
    run(5, async {
        let network = Network::new(5, Latency::milliseconds(0, 3));
        let servers = Masters::start(&network, &NAMES, 5);
        let replica = start(&network, &servers, "eu/r1");
        init(&replica.masters).await.unwrap();
        let lock = LockName::parse("default/lock").unwrap();
        replica.contend(&lock);
        replica.holds(&lock).await;
        servers.get(1).restart_empty().await;
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 2, "{:?}", replica.masters.status());
        time::sleep(Duration::from_secs(300)).await;
        assert_eq!(replica.masters.voters(), 3, "{:?}", replica.masters.status());
        assert!(servers.lock("redlock", &lock).leases.iter().all(Option::is_some));
        servers.get(0).pause();
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 2, "{:?}", replica.masters.status());
        servers.get(0).resume();
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 3, "{:?}", replica.masters.status());
    });
}

#[test]
fn a_rotated_password_is_used_before_the_connections_are_lost() {
    run(6, async {
        let network = Network::new(6, Latency::milliseconds(0, 3));
        let servers = Masters::start(&network, &NAMES, 6);
        let set = |text| servers.iter().for_each(|master| master.set_password(Some(text)));
        set("first");
        let replica = start_with(&network, &servers, "eu/r1", password("first"));
        init(&replica.masters).await.unwrap();
        set("second");
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 3, "{:?}", replica.masters.status());
        NAMES.iter().for_each(|name| network.reset("eu/r1", name));
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 0, "{:?}", replica.masters.status());
        replica.masters.rekey(password("second"), Tls::default()).unwrap();
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(replica.masters.voters(), 3, "{:?}", replica.masters.status());
        replica.masters.rekey(password("wrong"), Tls::default()).unwrap();
        time::sleep(Duration::from_secs(5)).await;
        let status = replica.masters.status();
        assert!(
            status
                .iter()
                .all(|master| master.connected && master.not_renewed.is_some()),
            "{status:?}"
        );
    });
}

/// Prints how much faster virtual time passes: `cargo test -p redlock-world --test masters speed -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed() {
    let begun = std::time::Instant::now();
    let passed = run(9, async move {
        let network = Network::new(9, Latency::milliseconds(0, 3));
        let servers = Masters::start(&network, &NAMES, 9);
        let replica = start(&network, &servers, "eu/r1");
        init(&replica.masters).await.unwrap();
        let locks: Vec<_> = (0..20)
            .map(|n| LockName::parse(&format!("default/lock-{n}")).unwrap())
            .collect();
        locks.iter().for_each(|lock| replica.contend(lock));
        for lock in &locks {
            replica.holds(lock).await;
        }
        time::sleep(Duration::from_secs(600)).await;
        passed()
    });
    let took = begun.elapsed();
    println!(
        "{passed:?} in {took:?}: {:.0} times",
        passed.as_secs_f64() / took.as_secs_f64()
    );

    let begun = std::time::Instant::now();
    let calls = run(9, async move {
        let network = Network::new(9, Latency::milliseconds(0, 3));
        let servers = Masters::start(&network, &NAMES, 9);
        let master = servers.get(0);
        let script = &redlock_client::lease::script::OBSERVE.source;
        let Reply::Bulk(sha) = master.execute(&["SCRIPT", "LOAD", script]) else {
            panic!()
        };
        let sha = String::from_utf8(sha).unwrap();
        let calls = 20_000;
        for _ in 0..calls {
            let keys = ["redlock:meta", "redlock:lease:a", "redlock:reserved:a"];
            let arguments = ["9999999999999999", "f", "eu/u"];
            master.execute(&[&["EVALSHA", &sha, "3"][..], &keys, &arguments].concat());
        }
        calls
    });
    println!("{:?} a call of OBSERVE", begun.elapsed() / calls);
}
