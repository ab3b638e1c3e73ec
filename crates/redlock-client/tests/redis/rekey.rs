//! Tests the rotation of credentials and certificates while leases are held.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use redlock_client::masters::{
    Credentials, Lease, MasterLogin, MasterStatus, MastersConfig, Renewal, Secret, Tls, Unknown,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lease::PATIENT;
use redlock_testkit::acl::{PASSWORD, as_user, line, servers};
use redlock_testkit::admin;
use redlock_testkit::masters::{Opened, config, open};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions, TlsMaterial, eventually};

const BOUND: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_millis(100);

/// The observations of a lease that was renewed throughout.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) renewed: u32,
    pub(crate) undecided: u32,
    pub(crate) lost: u32,
    /// The fewest masters that voted at any time.
    pub(crate) fewest_voters: usize,
}

/// Renews a lease every 100 ms until the test asks for the observations.
pub(crate) struct Held(JoinHandle<Life>, oneshot::Sender<()>);

impl Held {
    pub(crate) fn keep(masters: &Opened, mut lease: Lease) -> Self {
        let masters = masters.masters.clone();
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut life = Life {
                fewest_voters: usize::MAX,
                ..Life::default()
            };
            let mut tick = tokio::time::interval(EVERY);
            let mut excused = Instant::now();
            let mut answered = vec![excused; masters.status().len()];
            while ended.try_recv().is_err() {
                // After a pause of this process, its facts are outdated and show nothing about the masters. A server
                // that answers late on a busy machine also shows nothing for a few seconds.
                let paused = tick.tick().await.elapsed() > Duration::from_secs(1);
                let now = Instant::now();
                if paused {
                    excused = now + Duration::from_secs(2);
                    answered.fill(now);
                }
                let votes = |(one, answered): (&MasterStatus, &mut Instant)| {
                    let late = matches!(one.no_vote, Some(Unknown::Silent | Unknown::TimedOut(_)));
                    let old = matches!(one.no_vote, Some(Unknown::NotPolled));
                    if !late {
                        *answered = now;
                    }
                    one.votes() || late && now < *answered + PATIENT || old && now < excused
                };
                let voters = masters
                    .status()
                    .iter()
                    .zip(&mut answered)
                    .map(votes)
                    .filter(|votes| *votes)
                    .count();
                life.fewest_voters = life.fewest_voters.min(voters);
                match lease.renew().await.unwrap() {
                    Renewal::Renewed => life.renewed += 1,
                    Renewal::Undecided => life.undecided += 1,
                    Renewal::Lost => life.lost += 1,
                }
            }
            life
        });
        Self(task, end)
    }

    pub(crate) async fn life(self) -> Life {
        self.1.send(()).unwrap();
        self.0.await.unwrap()
    }
}

fn credentials(user: &str, password: &str) -> Credentials {
    Credentials {
        username: Some(user.to_owned()),
        password: Some(Secret::new(password.to_owned())),
        ..Credentials::default()
    }
}

async fn everywhere(servers: &[RedisServer], words: &[&str]) {
    for server in servers {
        let _: redis::Value = admin(server, words).await;
    }
}

/// Returns the connections of redlock's users, by server and number.
async fn connections(servers: &[RedisServer]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for server in servers {
        let list: String = admin(server, &["CLIENT", "LIST"]).await;
        let ours = list.lines().filter(|line| !line.contains(" user=default "));
        let ids = ours.filter_map(|line| line.split(' ').next());
        all.extend(ids.map(|id| format!("{} {id}", server.port())));
    }
    all
}

/// Waits until all earlier connections are replaced.
async fn renewed(servers: &[RedisServer], before: &BTreeSet<String>) {
    eventually(BOUND, "all connections are new ones", async || {
        let now = connections(servers).await;
        let done = now.is_disjoint(before) && now.len() == before.len();
        if done { Ok(()) } else { Err((now, before.clone())) }
    })
    .await;
}

async fn refused(masters: &Opened, by_auth: bool) -> Vec<MasterStatus> {
    eventually(
        BOUND,
        "every master reports that it refuses the new ones",
        async || {
            let all = masters.status();
            let refused = |m: &MasterStatus| m.not_renewed.is_some() && m.auth() == by_auth;
            if all.iter().all(refused) {
                Ok(all)
            } else {
                Err(all)
            }
        },
    )
    .await
}

async fn initialised(servers: &[RedisServer], config: &MastersConfig) -> Opened {
    let masters = open(config);
    masters.seal(servers).await;
    masters
}

#[tokio::test]
async fn a_password_is_rotated_without_a_vote_lost_and_used_from_then_on() {
    let servers = servers(vec![line()]);
    let masters = initialised(&servers, &as_user(&servers, "redlock")).await;
    let held = Held::keep(&masters, masters.acquire_soon("a/b", "me").await);

    let before = connections(&servers).await;
    everywhere(&servers, &["ACL", "SETUSER", "redlock", ">new"]).await;
    masters
        .rekey(credentials("redlock", "new"), Tls::default())
        .unwrap();
    renewed(&servers, &before).await;
    everywhere(&servers, &["ACL", "SETUSER", "redlock", &format!("<{PASSWORD}")]).await;
    let life = held.life().await;
    assert!(life.renewed > 0, "{life:?}");
    assert_eq!(
        (life.undecided, life.lost, life.fewest_voters),
        (0, 0, 3),
        "{life:?}"
    );

    // All connections are opened again at once: the lease also survives that.
    let held = Held::keep(&masters, masters.acquire_soon("c/d", "me").await);
    let before = connections(&servers).await;
    everywhere(&servers, &["CLIENT", "KILL", "USER", "redlock"]).await;
    renewed(&servers, &before).await;
    masters.voters(3).await;
    let life = held.life().await;
    assert_eq!(life.lost, 0, "{life:?}");
}

#[tokio::test]
async fn each_master_gets_its_own_password_and_no_other() {
    let servers = servers(vec![line()]);
    let mut config = as_user(&servers, "redlock");
    config.credentials.password = None;
    for (index, server) in servers.iter().enumerate() {
        let password = format!("password-of-{index}");
        let change = ["ACL", "SETUSER", "redlock", "resetpass", &format!(">{password}")];
        let _: redis::Value = admin(server, &change).await;
        let login = MasterLogin {
            username: None,
            password: Secret::new(password),
        };
        let name = config.masters[index].name.clone();
        config.credentials.own.insert(name, login);
    }
    let masters = initialised(&servers, &config).await;
    let _lease = masters.acquire_soon("a/b", "me").await;
    for server in servers.iter() {
        let refused: Vec<redis::Value> = admin(server, &["ACL", "LOG"]).await;
        assert!(refused.is_empty(), "another password was sent: {refused:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_takes_nothing_and_is_named_and_either_repair_is_taken() {
    let servers = servers(vec![line()]);
    let masters = initialised(&servers, &as_user(&servers, "redlock")).await;
    let held = Held::keep(&masters, masters.acquire_soon("a/b", "me").await);
    let before = connections(&servers).await;
    let wrong = credentials("redlock", "not-yet-known");
    masters.rekey(wrong.clone(), Tls::default()).unwrap();
    for status in refused(&masters, true).await {
        let text = format!("{status:?}");
        assert!(text.contains("WRONGPASS"), "{text}");
        assert!(!text.contains("not-yet-known"), "{text}");
        assert!(status.votes() && status.trouble.is_none(), "{text}");
    }
    assert_eq!(connections(&servers).await, before, "what works stays");

    // The Secret is corrected.
    masters
        .rekey(credentials("redlock", PASSWORD), Tls::default())
        .unwrap();
    renewed(&servers, &before).await;
    let before = connections(&servers).await;
    masters.rekey(wrong, Tls::default()).unwrap();
    refused(&masters, true).await;
    // The servers are corrected.
    everywhere(&servers, &["ACL", "SETUSER", "redlock", ">not-yet-known"]).await;
    renewed(&servers, &before).await;
    eventually(BOUND, "nothing is refused any more", async || {
        let all = masters.status();
        let left = all.iter().any(|master| master.not_renewed.is_some());
        if left { Err(all) } else { Ok(()) }
    })
    .await;
    let life = held.life().await;
    assert_eq!(
        (life.undecided, life.lost, life.fewest_voters),
        (0, 0, 3),
        "{life:?}"
    );
}

#[tokio::test]
async fn a_user_that_may_do_too_little_is_not_taken() {
    let lesser = line().replacen("redlock", "lesser", 1).replace(" +pexpire", "");
    let servers = servers(vec![line(), lesser]);
    let masters = initialised(&servers, &as_user(&servers, "redlock")).await;
    let held = Held::keep(&masters, masters.acquire_soon("a/b", "me").await);
    masters
        .rekey(credentials("lesser", PASSWORD), Tls::default())
        .unwrap();
    let text = format!("{:?}", refused(&masters, true).await);
    assert!(text.contains("NOPERM"), "{text}");
    let life = held.life().await;
    assert_eq!(
        (life.undecided, life.lost, life.fewest_voters),
        (0, 0, 3),
        "{life:?}"
    );
}

#[tokio::test]
async fn a_certificate_authority_is_rotated_without_a_vote_lost() {
    let (trusted, stranger) = (TlsMaterial::new(), TlsMaterial::new());
    let options = ServerOptions {
        tls: Some(trusted.server_files(false)),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let read = |material: &TlsMaterial| fs::read_to_string(material.ca()).unwrap();
    let tls = |ca: String| Tls {
        ca: Some(Secret::new(ca)),
        ..Tls::default()
    };
    let masters = initialised(
        &servers,
        &MastersConfig {
            tls: tls(read(&trusted)),
            ..config(&servers)
        },
    )
    .await;
    let held = Held::keep(&masters, masters.acquire_soon("a/b", "me").await);
    let no_credentials = Credentials::default();
    let bad = masters.rekey(no_credentials.clone(), tls("no certificate".into()));
    assert!(bad.unwrap_err().to_string().contains("certificate"));
    masters
        .rekey(no_credentials.clone(), tls(read(&stranger)))
        .unwrap();
    let text = format!("{:?}", refused(&masters, false).await);
    assert!(text.contains("certificate"), "{text}");
    masters
        .rekey(no_credentials, tls(read(&stranger) + &read(&trusted)))
        .unwrap();
    eventually(BOUND, "both are trusted", async || {
        let all = masters.status();
        let left = all.iter().any(|master| master.not_renewed.is_some());
        if left { Err(all) } else { Ok(()) }
    })
    .await;
    let life = held.life().await;
    assert_eq!(
        (life.undecided, life.lost, life.fewest_voters),
        (0, 0, 3),
        "{life:?}"
    );
}
