//! Tests docs/protocol.md, section 2.1, `_reporter/…`: the clusters that are alive on a quorum.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::AsyncCommands;
use redlock_client::lease::ClusterId;
use redlock_client::masters::{Acquired, Lease, MastersConfig, reporter_lock};

use crate::seal::raw;
use redlock_testkit::masters::{LONGEST_LEASE, Opened, config, identity, open};
use redlock_testkit::{RedisServers, ServerOptions, eventually};

const BOUND: Duration = Duration::from_secs(30);

async fn report(masters: &Opened) -> Lease {
    let lock = reporter_lock(masters.cluster()).unwrap();
    eventually(BOUND, "the lock of the reporter", async || {
        match masters
            .acquire(&lock, &identity("o"), LONGEST_LEASE)
            .await
            .unwrap()
        {
            Acquired::Won(lease) => Ok(lease),
            Acquired::Lost(loss) => Err(loss),
        }
    })
    .await
}

#[tokio::test]
async fn clusters_that_report_are_seen_with_their_names_also_by_a_minority_of_masters() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let of = |name: &str, uid: &str| MastersConfig {
        cluster: ClusterId::new(name, uid).unwrap(),
        // Characters that are special in a pattern.
        key_prefix: "a[b]*".into(),
        ..config(&servers)
    };
    let (one, other) = (open(&of("eu-1", "uid-1")), open(&of("eu-1", "uid-2")));
    one.seal(&servers).await;
    other.voters(3).await;
    let initial = one.clusters(BOUND).await;
    assert_eq!((initial.clusters.len(), initial.complete), (0, 3));

    let (first, _second) = (report(&one).await, report(&other).await);
    let _users_own = one.acquire_soon("a/b", "h").await;
    for server in servers.iter() {
        let mut connection = raw(server).await;
        let fill = "for i = 1, 3000 do redis.call('SET', 'other:' .. i, 1) end";
        let _: () = redis::Script::new(fill)
            .invoke_async(&mut connection)
            .await
            .unwrap();
        let foreign = "a[b]*:lease:_reporter/foreign";
        let _: () = connection.set(foreign, "no lease value").await.unwrap();
        // The leases must outlast a slow test.
        for uid in ["uid-1", "uid-2"] {
            let lease = format!("a[b]*:lease:_reporter/{uid}");
            let _: () = connection.pexpire(lease, 600_000).await.unwrap();
        }
    }
    let both: BTreeSet<_> = [one.cluster().clone(), other.cluster().clone()].into();
    let seen = one.clusters(BOUND).await;
    assert_eq!(
        (seen.clusters, seen.complete),
        (both.clone(), 3),
        "equal names, two UIDs"
    );

    servers[1].pause().unwrap();
    servers[2].pause().unwrap();
    let seen = other.clusters(BOUND).await;
    assert_eq!(
        (seen.clusters, seen.complete),
        (both, 1),
        "less than a majority confirms it"
    );
    servers[1].resume().unwrap();
    servers[2].resume().unwrap();

    assert!(first.release().await.is_ok());
    eventually(BOUND, "the first one is gone", async || {
        let seen = other.clusters(BOUND).await;
        let gone = !seen.clusters.contains(one.cluster()) && seen.complete == 3;
        if gone { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn the_walk_ends_in_time() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    let seen = masters.clusters(Duration::ZERO).await;
    assert_eq!(seen.complete, 0, "{seen:?}");
}
