//! Tests docs/protocol.md, section 4.3: masters that are never sealed and never a source.

use std::time::Duration;

use redlock_client::masters::{Ineligible, InitError, MastersConfig, init};

use crate::seal::{raw, register, sealed};
use redlock_testkit::masters::{config, open, remembered};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

fn three() -> RedisServers {
    RedisServers::start(3, &ServerOptions::default()).unwrap()
}

/// Tests an ineligible last master: init refuses it by name, the other two are sealed without it, and it gets
/// no seal.
async fn refused_by_name(config: &MastersConfig, odd: &RedisServer, named: impl Fn(&Ineligible) -> bool) {
    let masters = open(&remembered(config.clone()));
    let status = masters
        .master(2, "refused", |master| master.ineligible.is_some())
        .await;
    assert!(named(status.ineligible.as_ref().unwrap()), "{status:?}");
    let error = init(&masters).await.unwrap_err();
    assert!(
        matches!(&error, InitError::Ineligible { master, reason } if master == "m2" && named(reason)),
        "{error}"
    );
    masters.voters(2).await;
    let keys: u64 = redis::cmd("DBSIZE")
        .query_async(&mut raw(odd).await)
        .await
        .unwrap();
    assert_eq!(keys, 0, "neither probe nor seal");
    assert_eq!(masters.status()[2].sealing_left, None);
}

#[tokio::test]
async fn server_with_another_eviction_policy_is_not_sealed() {
    // Every key of a lease has an expiry, so a policy for volatile keys evicts leases, too.
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
        let odd = RedisServer::start(&ServerOptions {
            eviction_policy: Some(policy.into()),
            ..ServerOptions::default()
        })
        .unwrap();
        let two = RedisServers::start(2, &ServerOptions::default()).unwrap();
        let mut config = config(&two);
        config.masters.push(redlock_client::masters::MasterConfig {
            name: "m2".into(),
            url: odd.url(),
        });
        refused_by_name(&config, &odd, |unfit| {
            *unfit == Ineligible::EvictionPolicy(policy.into())
        })
        .await;
    }
}

#[tokio::test]
async fn a_replica() {
    let servers = three();
    let elsewhere = RedisServer::start(&ServerOptions::default()).unwrap();
    let _: () = redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(elsewhere.port())
        .query_async(&mut raw(&servers[2]).await)
        .await
        .unwrap();
    refused_by_name(&config(&servers), &servers[2], |unfit| {
        matches!(unfit, Ineligible::Replica(_))
    })
    .await;
}

#[tokio::test]
async fn cluster_mode() {
    let odd = RedisServer::start(&ServerOptions {
        config: vec!["cluster-enabled yes".into()],
        ..ServerOptions::default()
    })
    .unwrap();
    let two = RedisServers::start(2, &ServerOptions::default()).unwrap();
    let mut config = config(&two);
    config.masters.push(redlock_client::masters::MasterConfig {
        name: "m2".into(),
        url: odd.url(),
    });
    refused_by_name(&config, &odd, |unfit| *unfit == Ineligible::ClusterMode).await;
}

#[tokio::test]
async fn the_same_server_under_two_names() {
    let servers = three();
    let mut config = config(&servers);
    config.masters[2].url = format!("redis://localhost:{}", servers[1].port());
    let masters = open(&remembered(config));
    for index in [1, 2] {
        masters
            .master(index, "a duplicate", |master| {
                master.ineligible == Some(Ineligible::Duplicate)
            })
            .await;
    }
    // Neither of the two counts: the third alone is not a majority of masters without a seal.
    masters
        .master(0, "blocked", |master| {
            master.seal_blocked.is_some() && master.sealing_left == Some(Duration::ZERO)
        })
        .await;
    assert_eq!(masters.voters_now(), 0);
    assert_eq!(register(&servers[1], "seal").await, None);
}

#[tokio::test]
async fn another_fingerprint() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    drop(masters);
    let mut other = config(&servers);
    other.longest_lease += Duration::from_millis(500);
    let masters = open(&other);
    masters
        .master(1, "of another quorum", |m| {
            matches!(&m.ineligible, Some(Ineligible::OtherFingerprint { .. }))
        })
        .await;
    assert!(masters.try_acquire("a/b", "h").await.is_none());
    // One master loses its memory: the others are not sources for this quorum, and do not change.
    let seal = register(&servers[1], "seal").await;
    servers[0].restart_empty().unwrap();
    masters
        .master(0, "blocked", |master| {
            master.seal_blocked.is_some() && master.sealing_left == Some(Duration::ZERO)
        })
        .await;
    assert_eq!(register(&servers[0], "seal").await, None);
    assert_eq!(register(&servers[1], "seal").await, seal);
    let own = config(&servers).fingerprint().to_string();
    let stored = register(&servers[1], "fingerprint").await.unwrap();
    assert_eq!(stored.split(" quorum=").next(), Some(&*own));
}
