//! Tests the servers that all other tests rely on.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal;
use nix::unistd::Pid;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, ClientTlsConfig, TlsCertificates};

use redlock_testkit::{
    ChildGuard, Persistence, RedisServer, RedisServers, ServerOptions, TlsMaterial, eventually,
    eventually_blocking, patient,
};

const BOUND: Duration = Duration::from_secs(60);
/// Names the file into which the child of a test writes the servers that it has started.
const CHILD_REPORT: &str = "REDLOCK_TEST_CHILD_REPORT";

fn client(url: &str) -> Client {
    Client::open(url).unwrap()
}

async fn ping(client: &Client) -> redis::RedisResult<String> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(3)))
        .set_response_timeout(Some(Duration::from_secs(3)));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    redis::cmd("PING").query_async(&mut connection).await
}

async fn info(url: &str, field: &str) -> String {
    let mut connection = patient(&client(url)).await.unwrap();
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await
        .unwrap();
    info.get(field).unwrap()
}

fn alive(pid: u32) -> bool {
    signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), None).is_ok()
}

#[tokio::test]
async fn a_server_answers_and_leaves_nothing_behind() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let (pid, folder) = (server.pid().unwrap(), server.data_folder());
    assert_eq!(ping(&client(&server.url())).await.unwrap(), "PONG");
    assert_eq!(info(&server.url(), "process_id").await, pid.to_string());
    assert!(folder.exists());
    drop(server);
    assert!(!alive(pid));
    assert!(!folder.parent().unwrap().exists());
}

#[tokio::test]
async fn five_servers_are_five_masters() {
    let servers = RedisServers::start(5, &ServerOptions::default()).unwrap();
    let mut run_ids = Vec::new();
    for url in servers.urls() {
        run_ids.push(info(&url, "run_id").await);
    }
    run_ids.sort();
    run_ids.dedup();
    assert_eq!(run_ids.len(), 5);
}

#[tokio::test]
async fn a_paused_server_takes_bytes_and_answers_only_after_it_continues() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let client = client(&server.url());
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(30)))
        .set_response_timeout(Some(Duration::from_millis(100)));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    server.pause().unwrap();
    let set: redis::RedisResult<()> = connection.set("queued", 1).await;
    assert!(set.unwrap_err().is_timeout());
    assert!(ping(&client).await.unwrap_err().is_timeout());
    drop(connection);
    server.resume().unwrap();
    eventually(BOUND, "what was queued in the socket is executed", async || {
        let mut connection = patient(&client).await.map_err(|error| error.to_string())?;
        match connection.get::<_, Option<u8>>("queued").await {
            Ok(Some(1)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_can_be_killed_and_stopped() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    server.pause().unwrap();
    server.kill();
    assert_eq!(server.pid(), None);
    assert!(
        server
            .pause()
            .unwrap_err()
            .to_string()
            .contains("it is not running")
    );
    server.restart().unwrap();
    server.pause().unwrap();
    server.stop().unwrap();
    assert_eq!(server.pid(), None);
    assert!(server.log_tail().contains("bye bye"), "{}", server.log_tail());
}

#[tokio::test]
async fn a_server_that_starts_empty_has_lost_its_keys_and_is_another_run() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let server = RedisServer::start(&options).unwrap();
    let (url, run_id) = (server.url(), info(&server.url(), "run_id").await);
    let mut connection = patient(&client(&url)).await.unwrap();
    let () = connection.set("key", "value").await.unwrap();
    server.restart_empty().unwrap();
    assert_eq!(server.url(), url);
    assert_ne!(info(&url, "run_id").await, run_id);
    let mut connection = patient(&client(&url)).await.unwrap();
    assert_eq!(connection.get::<_, Option<String>>("key").await.unwrap(), None);
}

#[tokio::test]
async fn an_append_only_file_survives_a_kill_and_no_file_does_not() {
    for (persistence, expected) in [
        (Persistence::Aof, Some("value".to_owned())),
        (Persistence::None, None),
    ] {
        let server = RedisServer::start(&ServerOptions {
            persistence,
            ..ServerOptions::default()
        })
        .unwrap();
        let mut connection = patient(&client(&server.url())).await.unwrap();
        let () = connection.set("key", "value").await.unwrap();
        server.restart().unwrap();
        let mut connection = patient(&client(&server.url())).await.unwrap();
        assert_eq!(
            connection.get::<_, Option<String>>("key").await.unwrap(),
            expected,
            "{persistence:?}"
        );
    }
}

#[tokio::test]
async fn a_server_with_users_refuses_all_others() {
    let options = ServerOptions {
        password: Some("of the default user".to_owned()),
        users: vec!["app on >secret ~redlock:* +ping +get".to_owned()],
        ..ServerOptions::default()
    };
    let server = RedisServer::start(&options).unwrap();
    let error = ping(&client(&server.url())).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error}");
    let app = client(&format!("redis://app:secret@127.0.0.1:{}", server.port()));
    assert_eq!(ping(&app).await.unwrap(), "PONG");
    let mut connection = patient(&app).await.unwrap();
    let refused = connection
        .get::<_, Option<String>>("other:key")
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    server.restart_empty().unwrap();
    assert_eq!(ping(&app).await.unwrap(), "PONG", "users stay over a restart");
}

#[tokio::test]
async fn a_tls_server_answers_to_its_ca_and_with_a_client_certificate_only() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (trusted, stranger) = (TlsMaterial::new(), TlsMaterial::new());
    let options = ServerOptions {
        tls: Some(trusted.server_files(true)),
        ..ServerOptions::default()
    };
    let server = RedisServer::start(&options).unwrap();
    assert!(server.url().starts_with("rediss://"));

    let certificates = |ca: &TlsMaterial, client: Option<&TlsMaterial>| TlsCertificates {
        root_cert: Some(fs::read(ca.ca()).unwrap()),
        client_tls: client.map(|material| ClientTlsConfig {
            client_cert: fs::read(material.client_certificate()).unwrap(),
            client_key: fs::read(material.client_key()).unwrap(),
        }),
    };
    let client = |certificates| Client::build_with_tls(server.url(), certificates).unwrap();
    assert_eq!(
        ping(&client(certificates(&trusted, Some(&trusted))))
            .await
            .unwrap(),
        "PONG"
    );
    assert!(ping(&client(certificates(&trusted, None))).await.is_err());
    assert!(
        ping(&client(certificates(&trusted, Some(&stranger))))
            .await
            .is_err()
    );
    assert!(
        ping(&client(certificates(&stranger, Some(&trusted))))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn limits_and_debug_reach_the_server() {
    let options = ServerOptions {
        max_memory: Some("50mb".to_owned()),
        eviction_policy: Some("allkeys-lru".to_owned()),
        debug_command: true,
        config: vec!["hz 50".to_owned()],
        ..ServerOptions::default()
    };
    let server = RedisServer::start(&options).unwrap();
    let mut connection = patient(&client(&server.url())).await.unwrap();
    for (name, expected) in [
        ("maxmemory", "52428800"),
        ("maxmemory-policy", "allkeys-lru"),
        ("hz", "50"),
    ] {
        let answer: Vec<String> = redis::cmd("CONFIG")
            .arg("GET")
            .arg(name)
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(answer, [name, expected]);
    }
    let () = redis::cmd("DEBUG")
        .arg("SLEEP")
        .arg("0.001")
        .query_async(&mut connection)
        .await
        .unwrap();
}

#[test]
fn a_server_that_cannot_start_reports_the_reason() {
    let options = ServerOptions {
        config: vec!["no-such-directive 1".to_owned()],
        ..ServerOptions::default()
    };
    let error = RedisServer::start(&options).unwrap_err().to_string();
    assert!(
        error.contains("ended by itself") && error.contains("no-such-directive"),
        "{error}"
    );
}

#[test]
fn no_server_survives_kill_9_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--ignored",
            "--exact",
            "server::holds_two_servers_until_it_is_killed",
        ])
        .env(CHILD_REPORT, &report);
    let mut parent = ChildGuard::spawn("parent of two servers", &mut command);
    let lines = eventually_blocking(BOUND, "the parent has started two servers", || {
        let text = fs::read_to_string(&report).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() == 2 { Ok(lines) } else { Err(text) }
    });
    let servers: Vec<(u32, &Path)> = lines
        .iter()
        .map(|line| {
            line.split_once(' ')
                .map(|(pid, folder)| (pid.parse().unwrap(), Path::new(folder)))
                .unwrap()
        })
        .collect();
    assert!(servers.iter().all(|&(pid, folder)| alive(pid) && folder.exists()));
    parent.kill();
    eventually_blocking(BOUND, "both servers and their folders are gone", || {
        let left: Vec<_> = servers
            .iter()
            .filter(|(pid, folder)| alive(*pid) || folder.exists())
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

#[test]
#[ignore = "the child of no_server_survives_kill_9_of_its_parent"]
fn holds_two_servers_until_it_is_killed() {
    let Some(report) = std::env::var_os(CHILD_REPORT) else {
        return;
    };
    let servers = RedisServers::start(2, &ServerOptions::default()).unwrap();
    // A paused server must end as well as a running one.
    servers[1].pause().unwrap();
    let text: String = servers
        .iter()
        .map(|server| {
            format!(
                "{} {}\n",
                server.pid().unwrap(),
                server.data_folder().parent().unwrap().display()
            )
        })
        .collect();
    fs::File::create(report)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    // Longer than the test that kills this process; bounded in case that test dies first.
    let (_open, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(2 * BOUND);
}
