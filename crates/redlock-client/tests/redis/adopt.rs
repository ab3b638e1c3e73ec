//! Tests the fingerprint: bare urls adopt the stored one when a majority agrees and N equals the number of urls.

use std::time::Duration;

use redlock_client::masters::{self, AdoptError, Adopted, Agreement, MasterConfig, MastersConfig, adopt};

use redlock_testkit::masters::{config, open};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

fn servers(count: usize) -> RedisServers {
    RedisServers::start(count, &ServerOptions::default()).unwrap()
}

/// Returns the configuration that `--masters` gives.
fn bare(servers: &[RedisServer]) -> MastersConfig {
    MastersConfig {
        longest_lease: Duration::from_secs(60),
        acquire_limit: Duration::from_secs(2),
        ..config(servers)
    }
}

async fn seal(servers: &[RedisServer], config: &MastersConfig) {
    open(config).seal(servers).await;
}

fn named(servers: &[RedisServer]) -> MastersConfig {
    let names = ["eu", "us", "ap", "af", "sa"];
    let masters = servers.iter().zip(names).map(|(server, name)| MasterConfig {
        name: name.to_owned(),
        url: server.url(),
    });
    MastersConfig {
        masters: masters.collect(),
        ..config(servers)
    }
}

#[tokio::test]
async fn bare_urls_vote_under_the_names_and_lengths_that_are_stored() {
    let servers = servers(3);
    let stored = named(&servers);
    seal(&servers, &stored).await;
    // One of them may be down.
    servers[1].pause().unwrap();
    let adopted = adopt(bare(&servers), Agreement::Majority).await.unwrap();
    servers[1].resume().unwrap();
    assert!(adopted.stored);
    assert_eq!(adopted.fingerprint, stored.fingerprint());
    assert_eq!(adopted.config.longest_lease, stored.longest_lease);
    assert_eq!(adopted.config.acquire_limit, stored.acquire_limit);
    assert_eq!(
        adopted.config.masters[0].name, "m0",
        "which is which is not known"
    );

    let (masters, _notices, _tasks) = adopted.open().unwrap();
    redlock_testkit::eventually(Duration::from_secs(20), "all vote", async || {
        match masters.voters() {
            3 => Ok(()),
            _ => Err(masters.status()),
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_store_leaves_the_given_value() {
    let servers = servers(3);
    for agreement in [Agreement::Majority, Agreement::AllFound] {
        let Adopted {
            config,
            fingerprint,
            stored,
        } = adopt(bare(&servers), agreement).await.unwrap();
        assert!(!stored);
        assert_eq!(fingerprint, bare(&servers).fingerprint());
        assert_eq!(config.longest_lease, Duration::from_secs(60));
    }
}

#[tokio::test]
async fn another_number_of_masters_is_refused_with_both_numbers() {
    let servers = servers(5);
    seal(&servers, &named(&servers)).await;
    let error = adopt(bare(&servers[..3]), Agreement::Majority).await.unwrap_err();
    assert!(
        matches!(
            error,
            AdoptError::Count {
                urls: 3,
                stored: 5,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("af, ap, eu, sa, us"), "{error}");
}

#[tokio::test]
async fn masters_that_disagree_are_named_with_their_values() {
    let servers = servers(5);
    seal(&servers[..3], &config(&servers[..3])).await;
    let other = MastersConfig {
        longest_lease: Duration::from_secs(3),
        ..config(&servers[2..])
    };
    let error = masters::init(&open(&other).masters).await.unwrap_err();
    assert!(error.to_string().contains("m0"), "{error}");
    let error = adopt(bare(&servers), Agreement::Majority).await.unwrap_err();
    assert!(
        matches!(error, AdoptError::Count { .. }),
        "three of five agree: {error}"
    );

    let error = adopt(bare(&servers[1..4]), Agreement::Majority).await;
    assert!(error.is_ok(), "two of three agree: {error:?}");
    let error = adopt(bare(&servers[2..]), Agreement::Majority).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, AdoptError::Forgotten { .. }), "{text}");
    assert!(
        text.contains("m0 (redis://127.0.0.1:") && text.contains("masters=m0,m1,m2"),
        "{text}"
    );
    assert!(text.contains("m1 (") && text.contains("no fingerprint"), "{text}");
}

#[tokio::test]
async fn one_server_under_two_urls_is_no_majority() {
    let servers = servers(3);
    seal(&servers, &config(&servers)).await;
    servers[1].kill();
    servers[2].kill();
    let mut twice = bare(&servers);
    twice.masters[1].url = format!("redis://localhost:{}", servers[0].port());
    let error = adopt(twice, Agreement::Majority).await.unwrap_err();
    assert!(
        matches!(
            error,
            AdoptError::Forgotten { .. } | AdoptError::NoMajority { denied: 0, .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn repair_takes_the_value_of_the_only_master_left() {
    let servers = servers(3);
    seal(&servers, &named(&servers)).await;
    servers[1].kill();
    servers[2].kill();
    let error = adopt(bare(&servers), Agreement::Majority).await.unwrap_err();
    assert!(
        matches!(error, AdoptError::NoMajority { denied: 0, .. }),
        "{error}"
    );
    let adopted = adopt(bare(&servers), Agreement::AllFound).await.unwrap();
    assert_eq!(adopted.fingerprint, named(&servers).fingerprint());
}
