//! Tests the commands for users, on objects by their names: the real program with a real operator.

use std::path::PathBuf;

use kube::config::Kubeconfig;
use serde_json::Value;

use crate::fixture::BOUND;
use crate::program::until;
use crate::world::{World, condition, lasting, lock, redlock_as};
use redlock_testkit::{RedisServer, ServerOptions, eventually};

const IMMEDIATE: &str = "  firstStart: Immediate\n";
const REQUEST: &str = "redlock.dev/hand-over";
const ANSWER: &str = "redlock.dev/hand-over-answer";

fn held(by: &str) -> impl Fn(&Value) -> bool + '_ {
    move |status| status["holderIdentity"] == by
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_shown_and_broken_by_the_name_of_their_object() {
    let mut world = World::new(3).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&lasting(&world.quorum("default", IMMEDIATE)));
    world.apply(&lasting(&lock("report", "")));
    let before = world.lock_status("report", "is held", held("replica-1")).await;
    world
        .quorum_status("default", "is ready and reported on", |status| {
            condition(status, "Ready").0 == "True" && status["reporters"][0].is_object()
        })
        .await;
    let namespace = world.namespace.name().to_owned();
    let n = namespace.as_str();

    // A lock is won with two of three masters, and the next renewal adds the third.
    let table = until(
        || world.redlock(&["status", "-n", n]),
        0,
        &[
            "3/3",
            "RedisQuorum default",
            "3 of 3 masters vote",
            "report",
            "Active",
        ],
    );
    println!("{}", table.stdout);
    assert!(!table.stdout.contains("NAMESPACE"), "{table:#?}");
    let texts = ["NAMESPACE", n, "report"];
    until(|| world.redlock(&["status", "-A"]), 0, &texts);
    let status = ["status", "-n", n, "report", "-o", "json"];
    let json = until(|| world.redlock(&status), 0, &["\"voting\": 3"]).json();
    let shown = &json["locks"][0];
    assert_eq!(shown["name"], "report");
    assert_eq!(shown["lockName"], format!("{n}/report"));
    assert_eq!(shown["source"], "masters");
    assert_eq!(shown["holderIdentity"], "replica-1");
    assert_eq!(shown["fencingToken"], before["fencingToken"]);
    assert_eq!(shown["status"]["role"], "Active");
    assert_eq!(shown["accounts"].as_array().unwrap().len(), 3);
    assert_eq!(json["masters"][2]["quorum"], "default");
    assert_eq!(json["quorums"][0]["voting"], 3);

    let healthy = ["healthy: 3 of 3", "RedisQuorum default", "1 of 1 are ready"];
    until(|| world.redlock(&["doctor"]), 0, &healthy);
    let texts = [&healthy[..], &["✓ followed", "✓ Ready"]].concat();
    let doctor = until(|| world.redlock(&["doctor", "--verbose"]), 0, &texts);
    println!("{}", doctor.stdout);

    for (arguments, code, text) in [
        (
            &["status", "-n", n, "nothing"][..],
            78,
            format!("there is no LeaderLock {n}/nothing"),
        ),
        (
            &["break", "-n", n, "nothing"],
            78,
            format!("there is no LeaderLock {n}/nothing"),
        ),
        (
            &["status", "-n", "no-such"],
            78,
            "there is no namespace \"no-such\"".to_owned(),
        ),
        (
            &["status", "-n", "no-such", "report"],
            78,
            "there is no namespace \"no-such\"".to_owned(),
        ),
        (
            &["status", "-n", "default"],
            0,
            "no LeaderLock in namespace default".to_owned(),
        ),
        (
            &["doctor", "--quorum", "other"],
            78,
            "there is no RedisQuorum other".to_owned(),
        ),
        (
            &["break", "-n", n, "report", "--quorum", "other"],
            64,
            "uses RedisQuorum default, not other".to_owned(),
        ),
        (
            &["hand-over", "-n", n, "report", "--to", "us-1"],
            78,
            "the clusters are: test/".to_owned(),
        ),
        (
            &["hand-over", "-n", n, "report", "--to", "test"],
            1,
            "is already held by cluster test".to_owned(),
        ),
    ] {
        until(|| world.redlock(arguments), code, &[&text]);
    }

    until(
        || world.redlock(&["break", "-n", n, "report"]),
        64,
        &[
            &format!("LeaderLock {n}/report is lock {n}/report"),
            "held by replica-1",
            "nothing was done",
        ],
    );
    until(
        || world.redlock(&["break", "-n", n, "report", "--yes", "--reason", "INC-42"]),
        0,
        &["reason: INC-42", "reserved for no candidate"],
    );
    let token = before["fencingToken"].as_u64();
    world
        .lock_status("report", "is held again, with a later token", |status| {
            status["fencingToken"].as_u64() > token && status["role"] == "Active"
        })
        .await;

    world.apply(&world.quorum("other", "  keyPrefix: other\n"));
    world
        .redlock(&["doctor"])
        .expect(64, &["several RedisQuorums", "default, other"]);

    for server in &mut world.masters {
        server.kill();
    }
    let away = world.redlock(&["status", "-n", n, "report"]);
    println!("{}", away.stdout);
    away.expect(
        69,
        &[
            "no majority of the masters",
            "kubectl exec",
            "from the statuses of the objects",
            "not asked",
        ],
    );
    world
        .redlock(&["break", "-n", n, "report", "--yes", "--reason", "x"])
        .expect(
            69,
            &[
                "no majority of the masters of RedisQuorum default",
                "kubectl exec",
            ],
        );
    world
        .redlock(&["doctor", "--quorum", "default"])
        .expect(69, &["✗ reachable", "kubectl exec"]);
}

/// The kubeconfig names one API server twice, and one that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn several_clusters_are_one_table_and_one_that_is_away_hides_no_other() {
    let world = World::small(3).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&lasting(&world.quorum("default", IMMEDIATE)));
    world.apply(&lasting(&lock("report", "")));
    world.lock_status("report", "is held", held("replica-1")).await;
    let n = world.namespace.name().to_owned();

    let mut config = Kubeconfig::read_from(world.plane.kubeconfig_admin()).unwrap();
    let (mut cluster, context) = (config.clusters[0].clone(), config.contexts[0].clone());
    cluster.name = "gone".into();
    cluster.cluster.as_mut().unwrap().server = Some("https://127.0.0.1:1".into());
    config.clusters.push(cluster);
    config.contexts = ["eu", "us", "gone"]
        .map(|name| {
            let mut context = context.clone();
            name.clone_into(&mut context.name);
            if name == "gone" {
                context.context.as_mut().unwrap().cluster = "gone".into();
            }
            context
        })
        .into();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
    let status = |contexts: &[&str], more: &[&str]| {
        let contexts = contexts.iter().flat_map(|context| ["--context", *context]);
        let arguments: Vec<&str> = ["status"]
            .into_iter()
            .chain(contexts)
            .chain(more.iter().copied())
            .collect();
        redlock_as(&file, &arguments, &[])
    };
    let rows = |table: &str| -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        table
            .lines()
            .take_while(|line| !line.is_empty())
            .map(words)
            .collect()
    };

    let voting = "us: RedisQuorum default: 3 of 3 masters vote";
    let both = until(|| status(&["eu", "us"], &["-n", &n]), 0, &[voting]);
    println!("{}", both.stdout);
    let found = rows(&both.stdout);
    assert_eq!(found[0][..3], ["CLUSTER", "NAMESPACE", "NAME"]);
    assert_eq!(found[1][..3], ["eu", n.as_str(), "report"]);
    assert_eq!(found[2][..3], ["us", n.as_str(), "report"]);

    let texts = ["gone: ", "the API server cannot be reached"];
    let part = until(|| status(&["eu", "gone"], &["-n", &n]), 80, &texts);
    println!("{}", part.stdout);
    let found = rows(&part.stdout);
    assert_eq!(found[1][0], "eu");
    assert_eq!((&*found[2][0], &*found[2][5]), ("gone", "unknown"));
    let both = || status(&["gone", "eu"], &["-A", "-o", "json"]);
    let json = until(both, 80, &["\"report\""]).json();
    assert_eq!(json["clusters"][0]["context"], "gone");
    assert!(json["clusters"][0]["status"].is_null() && json["clusters"][0]["error"].is_string());
    assert_eq!(json["clusters"][1]["status"]["locks"][0]["name"], "report");

    // The same works as a plugin of kubectl.
    let bin = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_redlock"), bin("kubectl-redlock")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let kubectl = |arguments: &[&str]| {
        let mut command = world.plane.kubectl_command(&world.plane.kubeconfig_admin());
        let output = command.args(arguments).env("PATH", &path).output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let config = file.to_str().unwrap();
    let asked = [
        "redlock",
        "status",
        "--kubeconfig",
        config,
        "--context",
        "us",
        "--namespace",
        &n,
    ];
    eventually(BOUND, "the plugin shows the holder", async || {
        let (code, output) = kubectl(&asked);
        if code == Some(0) && output.contains("replica-1") {
            Ok(())
        } else {
            Err((code, output))
        }
    })
    .await;
    let (code, output) = kubectl(&["redlock", "status", "--kubeconfig", config, "--context", "gone"]);
    assert!(
        code == Some(78) && output.contains("cannot be reached"),
        "{code:?} {output}"
    );
    eventually(BOUND, "a quiet doctor prints nothing", async || {
        let ran = kubectl(&["redlock", "doctor", "--quiet"]);
        if ran == (Some(0), String::new()) {
            Ok(())
        } else {
            Err(ran)
        }
    })
    .await;

    status(&["gone", "no-such"], &["-A"]).expect(78, &["no such context"]);
    status(&["eu", "us"], &["--registers"]).expect(64, &["--registers"]);
    redlock_as(&file, &["doctor", "--context", "eu", "--context", "us"], &[])
        .expect(64, &["eu, us", "takes one"]);
}

impl World {
    /// Returns the kubeconfig of a new ServiceAccount with these verbs in the namespace, and read access to
    /// RedisQuorums.
    async fn user(&self, name: &str, verbs: &str) -> PathBuf {
        let namespace = self.namespace.name();
        let account = format!("--serviceaccount={namespace}:{name}");
        self.kubectl(&["create", "serviceaccount", name]);
        if !verbs.is_empty() {
            let verbs = format!("--verb={verbs}");
            let reads = ["create", "clusterrole", name, "--verb=get,list"];
            self.kubectl(&[&reads[..], &["--resource=redisquorums.redlock.dev"]].concat());
            self.kubectl(&[
                "create",
                "clusterrolebinding",
                name,
                "--clusterrole",
                name,
                &account,
            ]);
            self.kubectl(&[
                "create",
                "role",
                name,
                &verbs,
                "--resource=leaderlocks.redlock.dev",
            ]);
            self.kubectl(&["create", "rolebinding", name, "--role", name, &account]);
        }
        self.plane.service_account_kubeconfig(namespace, name, None).await
    }

    /// Returns an annotation of a lock.
    async fn annotation(&self, lock: &str, name: &str) -> Option<String> {
        let object = self.locks().get(lock).await.unwrap();
        object.metadata.annotations?.get(name).cloned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_and_done_without() {
    let mut world = World::new(0).await;
    let options = ServerOptions {
        password: Some("hunter2".into()),
        ..ServerOptions::default()
    };
    world.masters = (0..3).map(|_| RedisServer::start(&options).unwrap()).collect();
    let namespace = world.namespace.name().to_owned();
    let n = namespace.as_str();
    world.kubectl(&[
        "create",
        "secret",
        "generic",
        "masters",
        "--from-literal=password=hunter2",
    ]);
    let auth = format!("  auth: {{secretRef: {{name: masters, namespace: {n}}}}}\n{IMMEDIATE}");
    world.apply(&lasting(&world.quorum("default", &auth)));
    world.apply(&lasting(&lock("report", "")));
    let _operator = world.operator("replica-1").await;
    world.lock_status("report", "is held", held("replica-1")).await;
    until(|| world.redlock(&["status", "-n", n]), 0, &["3/3"]).keeps("hunter2");

    let viewer = world.user("viewer", "get,list").await;
    let as_viewer = |arguments: &[&str]| redlock_as(&viewer, arguments, &[]);
    let secret = format!("get of Secret {n}/masters, which RedisQuorum default names: not allowed");
    let status = ["status", "-n", n];
    let texts = [
        secret.as_str(),
        "cannot get resource \"secrets\"",
        "--password-file",
        "not asked",
        "replica-1",
    ];
    // The API server applies a new right a moment later.
    until(|| as_viewer(&status), 77, &texts);
    let given = [("REDLOCK_PASSWORD", "hunter2")];
    until(|| redlock_as(&viewer, &status, &given), 0, &["3/3"]);
    let wrong = [("REDLOCK_PASSWORD", "the-wrong-one")];
    let texts = ["WRONGPASS", "not asked"];
    until(|| redlock_as(&viewer, &status, &wrong), 77, &texts);
    as_viewer(&["break", "-n", n, "report", "--yes", "--reason", "x"]).expect(77, &[&secret]);
    as_viewer(&["doctor"]).expect(77, &[&secret]);
    let ready = "1 of 1 are ready, in namespace";
    until(|| redlock_as(&viewer, &["doctor"], &given), 0, &[ready]);
    as_viewer(&["hand-over", "-n", n, "report", "--to", "us-1/x", "--force"]).expect(
        77,
        &[
            "patch of the annotation redlock.dev/hand-over",
            "cannot patch",
            &secret,
        ],
    );

    let unauthorized = world.user("nobody", "").await;
    redlock_as(&unauthorized, &["status", "-n", n], &[]).expect(
        77,
        &[
            &format!("reading LeaderLocks of namespace {n}: not allowed"),
            "cannot list",
        ],
    );
    redlock_as(&unauthorized, &["doctor"], &[]).expect(77, &["reading RedisQuorums: not allowed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_passed_on_to_another_cluster() {
    let (eu, us) = (World::new(3).await, World::new(0).await);
    let (n, there) = (eu.namespace.name(), us.namespace.name());
    let shared = format!("{IMMEDIATE}  sharedLockNames: [{{prefix: shared/, namespaces: [{n}, {there}]}}]\n");
    let (quorum, report) = (
        lasting(&eu.quorum("default", &shared)),
        lasting(&lock("report", ", lockName: shared/report")),
    );
    let us_operator = us.operator_of("us-1", "us-a").await;
    us.apply(&quorum);
    us.quorum_status("default", "is reported on", |status| {
        status["reporters"][0].is_object()
    })
    .await;
    let eu_operator = eu.operator_of("eu-1", "eu-a").await;
    eu.apply(&quorum);
    eu.apply(&report);
    let before = eu.lock_status("report", "is held", held("eu-a")).await;
    us.apply(&report);
    us.lock_status("report", "is held elsewhere", held("eu-a")).await;
    eu.quorum_status("default", "knows both clusters", |status| {
        status["reporters"][1].is_object()
    })
    .await;

    let ran = eu.redlock(&["hand-over", "-n", n, "report", "--to", "us-1"]);
    println!("{}", ran.stdout);
    ran.expect(
        0,
        &[
            "is held by eu-a of cluster eu-1",
            "handed over: us-a of cluster us-1/",
        ],
    );
    // The time is not known if the command saw the new lease too late.
    let gap = ["for at most", "the time without a holder is not known"];
    assert!(gap.iter().any(|text| ran.shows(text)), "{ran:#?}");
    let after = us.lock_status("report", "is held", held("us-a")).await;
    assert!(after["fencingToken"].as_u64() > before["fencingToken"].as_u64());
    assert_eq!(after["role"], "Active");
    eu.lock_status("report", "stands by", |status| status["holderCluster"] == "us-1")
        .await;
    assert_eq!(eu.annotation("report", REQUEST).await, None);
    let answer = eu.annotation("report", ANSWER).await.unwrap();
    assert!(answer.contains("Reserving"), "{answer}");

    // A cluster that does not hold the lock cannot hand it over.
    eu.redlock(&["hand-over", "-n", n, "report", "--to", "us-1"])
        .expect(
            1,
            &["is not held by this cluster: us-a of cluster us-1 holds the lock"],
        );
    // A request for an earlier lease, as the restore of a backup may contain it.
    let old = format!(
        r#"{{"id":"old","to":"eu-1/x","token":{},"notAfter":99999999999}}"#,
        before["fencingToken"]
    );
    us.kubectl(&["annotate", "leaderlock", "report", &format!("{REQUEST}={old}")]);
    eventually(BOUND, "the old request is refused", async || {
        match us.annotation("report", ANSWER).await {
            Some(answer) if answer.contains("Refused") && answer.contains("is over") => Ok(()),
            answer => Err(answer),
        }
    })
    .await;
    assert_eq!(us.annotation("report", REQUEST).await, None);
    let still = us.lock_status("report", "is held", held("us-a")).await;
    assert_eq!(still["fencingToken"], after["fencingToken"]);

    // No operator answers: the request is withdrawn, so that it has no effect later.
    us_operator.child.freeze();
    eu_operator.child.freeze();
    us.redlock(&[
        "hand-over",
        "-n",
        there,
        "report",
        "--to",
        "eu-1",
        "--wait",
        "300ms",
    ])
    .expect(1, &["the request was withdrawn"]);
    assert_eq!(us.annotation("report", REQUEST).await, None);
}
