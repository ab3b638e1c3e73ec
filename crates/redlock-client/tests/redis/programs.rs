//! Tests docs/servers.md: the program behind a url is named, and a program that cannot keep leases is refused
//! by its name.

use redlock_client::masters::{Ineligible, InitError, MasterConfig, MasterStatus, Refusal, init};
use redlock_core::Server;
use redlock_testkit::masters::{Opened, config, open};
use redlock_testkit::{FakeServer, RedisServers, Scripts, ServerOptions, admin};

const DRAGONFLY: &str = "redis_version:7.4.0\ndragonfly_version:df-v1.40.1\nredis_mode:standalone";
const GARNET: &str = "garnet_version:1.1.9\nrun_id:1f\nredis_version:7.4.3\nredis_mode:standalone";
const UNKNOWN: &str = "server_name:newdb\nredis_version:7.2.4\nrun_id:2a\nredis_mode:standalone";

/// Opens masters of which m0 is a real server and the others are these programs.
fn beside(programs: &[FakeServer]) -> (RedisServers, Opened) {
    let servers = RedisServers::start(1, &ServerOptions::default()).unwrap();
    let mut config = config(&servers);
    let others = programs.iter().enumerate().map(|(n, program)| MasterConfig {
        name: format!("m{}", n + 1),
        url: program.url(),
    });
    config.masters.extend(others);
    let masters = open(&config);
    (servers, masters)
}

fn refusal(master: &MasterStatus) -> String {
    let text = match &master.ineligible {
        Some(Ineligible::Server(refusal @ Refusal::Unfit(..))) => refusal.to_string(),
        other => panic!("{other:?} in {master:?}"),
    };
    assert_eq!(master.trouble, None, "{master:?}");
    assert!(!master.votes());
    text
}

async fn refused(masters: &Opened, index: usize) -> String {
    let status = masters
        .master(index, "refused", |master| master.ineligible.is_some())
        .await;
    refusal(&status)
}

#[tokio::test]
async fn program_that_runs_scripts_is_refused_by_its_name() {
    let fake = |info, role| FakeServer::start(Some(info), Scripts::Facts { role });
    let keydb = "redis_version:6.3.4\nmvcc_depth:0";
    // Two Dragonflies without a run_id are not taken for one server.
    let programs = [
        fake(DRAGONFLY, "master"),
        fake(DRAGONFLY, "master"),
        fake(keydb, "active-replica"),
        fake(
            "redis_version:7.1.0\nredis_mode:cluster\nos:Amazon MemoryDB",
            "master",
        ),
    ];
    let (_servers, masters) = beside(&programs);
    for index in [1, 2] {
        let text = refused(&masters, index).await;
        assert!(
            text.starts_with("Dragonfly df-v1.40.1 cannot be a master: "),
            "{text}"
        );
    }
    let text = refused(&masters, 3).await;
    assert!(
        text.starts_with("KeyDB 6.3.4 with active replicas cannot"),
        "{text}"
    );
    let text = refused(&masters, 4).await;
    assert!(text.contains("cluster mode only"), "{text}");
}

#[tokio::test]
async fn program_that_runs_no_script_is_refused_by_its_name() {
    let programs = [GARNET, "redis_version:7.0.15\nredis_mode:sentinel"]
        .map(|info| FakeServer::start(Some(info), Scripts::Unknown));
    let (_servers, masters) = beside(&programs);
    let text = refused(&masters, 1).await;
    assert!(text.starts_with("Garnet 1.1.9 cannot be a master"), "{text}");
    let text = refused(&masters, 2).await;
    assert!(text.starts_with("Sentinel 7.0.15 cannot be a master"), "{text}");
    let error = init(&masters).await.unwrap_err();
    assert!(
        matches!(&error, InitError::Ineligible { master, .. } if master == "m1"),
        "{error}"
    );
    assert!(error.to_string().contains("Garnet 1.1.9"), "{error}");
}

/// A field that the user may not read, or that is unknown, is no reason to refuse the server by name. The
/// server still has no vote.
#[tokio::test]
async fn program_without_a_known_name_is_reported_and_not_refused() {
    let programs = [None, Some(UNKNOWN), Some("os:Linux"), Some("")]
        .map(|info| FakeServer::start(info, Scripts::Unknown));
    let (_servers, masters) = beside(&programs);
    for index in 1..=4 {
        let status = masters
            .master(index, "in trouble", |master| master.trouble.is_some())
            .await;
        assert_eq!(status.ineligible, None, "{status:?}");
        let trouble = status.trouble.unwrap().to_string();
        assert!(trouble.contains("unknown command"), "{trouble}");
        assert!(status.no_vote.is_some());
    }
}

#[tokio::test]
async fn real_server_is_named_with_its_own_version() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    let status = masters.master(0, "read", |master| master.facts.is_some()).await;
    let info: String = admin(&servers[0], &["INFO", "server"]).await;
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    };
    let expected = field("valkey_version")
        .map(Server::Valkey)
        .or_else(|| field("redis_version").map(Server::Redis));
    assert_eq!(Some(status.facts.unwrap().server), expected, "{info}");
    assert_eq!(status.ineligible, None);
}
