//! Tests that each invalid value is named, with the expected one, and that the other locks continue.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;

use crate::replica::{BOUND, Folder, Replica, command, lock, masters, quorum, servers_with};
use redlock_testkit::{ChildGuard, ServerOptions, eventually_blocking, free_port};

fn fails(name: &str, folder: &Folder, change: impl FnOnce(&mut std::process::Command)) -> (i32, String) {
    let mut command = command(name, folder.path(), free_port().unwrap());
    change(&mut command);
    let mut child = ChildGuard::spawn(name, &mut command);
    let (status, _) = child.wait(BOUND);
    (status.code().expect("no signal"), child.stderr().join("\n"))
}

#[test]
fn failed_start_has_a_reason_and_an_exit_code() {
    let folder = Folder::new(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let (code, stderr) = fails("two-addresses", &folder, |c| _ = c.args(["--listen", &address]));
    assert!(stderr.contains("cannot be used multiple times"), "{stderr}");
    assert_eq!(code, 64);

    let mut child = ChildGuard::spawn(
        "port-in-use",
        &mut command("r", folder.path(), taken.local_addr().unwrap().port()),
    );
    let (status, _) = child.wait(BOUND);
    let stderr = child.stderr().join("\n");
    assert_eq!(status.code(), Some(78), "{stderr}");
    for part in [&address, "--listen", "give another port", "in use"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }

    let gone = Folder::new(&[]);
    let path = gone.path().to_owned();
    fs::remove_dir(&path).unwrap();
    let (code, stderr) = fails("no-folder", &gone, |_| {});
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains(path.to_str().unwrap()), "{stderr}");
    assert!(stderr.contains("give a readable folder"), "{stderr}");
    fs::create_dir(&path).unwrap();

    let (code, stderr) = fails("log-level", &folder, |c| _ = c.args(["--log-level", "loud=very"]));
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("loud=very"), "{stderr}");

    let (code, stderr) = fails("log-word", &folder, |c| _ = c.args(["--log-level", "loud"]));
    assert_eq!(code, 64, "{stderr}");
    assert!(
        stderr.contains("loud") && stderr.contains("target=level"),
        "{stderr}"
    );

    let (code, stderr) = fails("password-file", &folder, |c| {
        c.args(["--password-file", "/nowhere/password"]);
    });
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("--password-file /nowhere/password"), "{stderr}");

    let (code, stderr) = fails("cluster", &folder, |c| _ = c.args(["--cluster", "a|b"]));
    assert_eq!(code, 64, "{stderr}");
    assert!(
        stderr.contains("cluster name") && stderr.contains("a|b"),
        "{stderr}"
    );
}

#[tokio::test]
async fn each_bad_manifest_is_named_and_the_other_locks_continue() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["good"]);
    let other = |name: &str, spec: &str| {
        format!(
            "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {name}}}\nspec: {{masters: [{spec}]}}\n"
        )
    };
    let of = |url: [&str; 3]| {
        format!(
            "{{name: a, url: \"{}\"}}, {{name: b, url: \"{}\"}}, {{name: c, url: \"{}\"}}",
            url[0], url[1], url[2]
        )
    };
    let lease = |seconds: &str, more: &str| {
        lock("x", more).replace(
            "leaseDurationSeconds: 10",
            &format!("leaseDurationSeconds: {seconds}"),
        )
    };
    // File, text, and the required message: field, value, expected value.
    let cases: Vec<(&str, String, Vec<&str>)> = vec![
        ("empty.yaml", other("empty", ""), vec!["spec.masters", "3"]),
        (
            "twice.yaml",
            other("twice", &of(["redis://h:1", "redis://h:1", "redis://h:2"])),
            vec!["spec.masters[1].url", "redis://h:1"],
        ),
        (
            "url.yaml",
            other("url", &of(["redis://h:port", "redis://h:1", "redis://h:2"])),
            vec!["spec.masters[0].url", "redis://h:port"],
        ),
        (
            "retry.yaml",
            lease("2", ", retryPeriodSeconds: 3"),
            vec!["spec.retryPeriodSeconds", "3"],
        ),
        (
            "long.yaml",
            lease("11", "").replace("name: x", "name: long"),
            vec!["spec.leaseDurationSeconds", "11", "10"],
        ),
        (
            "field.yaml",
            lock("field", ", leaseDuration: 2"),
            vec!["spec.leaseDuration", "is not a field of this kind"],
        ),
        ("yaml.yaml", "a: [".into(), vec!["not valid YAML"]),
        (
            "auth.yaml",
            other("auth", &of(["redis://i:1", "redis://i:2", "redis://i:3"])).replace(
                "spec: {",
                "spec: {auth: {secretRef: {name: s, namespace: n}}, keyPrefix: other, ",
            ),
            vec!["RedisQuorum auth", "spec.auth.secretRef", "--password-file"],
        ),
        (
            "tls.yaml",
            other("tls", &of(["rediss://j:1", "rediss://j:2", "rediss://j:3"])).replace(
                "spec: {",
                "spec: {tls: {secretRef: {name: s, namespace: n}}, keyPrefix: another, ",
            ),
            vec!["RedisQuorum tls", "spec.tls.secretRef", "--tls-ca"],
        ),
    ];
    for (file, text, _) in &cases {
        folder.write(file, text);
    }
    // A broken link, since a superuser can read every file.
    symlink("nothing", folder.path().join("unreadable.yaml")).unwrap();

    let mut replica = Replica::start("r", &folder);
    replica.wait_active("good");
    for (file, _, parts) in &cases {
        let first = if parts[0].starts_with("RedisQuorum") {
            parts[0]
        } else {
            file
        };
        let line = replica.child.wait_for_line(BOUND, first);
        for part in parts {
            assert!(line.contains(part), "{file}: {part}: {line}");
        }
    }
    let line = replica.child.wait_for_line(BOUND, "unreadable.yaml");
    assert!(line.contains("cannot be read"), "{line}");
    assert!(replica.locks().iter().all(|lock| lock["name"] == "good"));
    eventually_blocking(BOUND, "it is ready, and names the document", || {
        match replica.get("/readyz") {
            (200, body) if body.contains("retry.yaml, document 1") => Ok(()),
            other => Err(other),
        }
    });
    for line in replica.child.stderr() {
        assert!(!line.contains("panicked"), "{line}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_named_and_no_reason_to_end() {
    let options = ServerOptions {
        password: Some("right".into()),
        ..ServerOptions::default()
    };
    let servers = servers_with(3, &options);
    let folder = Folder::new(&[("quorum.yaml", &quorum(&servers, "")), ("a.yaml", &lock("a", ""))]);
    let mut replica = Replica::start_with("r", &folder, |c| {
        _ = c.env("REDLOCK_PASSWORD", "distinctly-wrong")
    });
    replica.child.wait_for_line(BOUND, "WRONGPASS");
    eventually_blocking(BOUND, "/readyz reports it", || {
        let (status, body) = replica.get("/readyz");
        (status == 503 && body.contains("WRONGPASS"))
            .then_some(())
            .ok_or(body)
    });
    replica.wait_alive();
    assert_eq!(replica.lock("a")["role"], "Unknown");
    let all = replica.child.stderr().join("\n") + &replica.get("/readyz").1;
    assert!(!all.contains("distinctly-wrong"), "{all}");
}

#[tokio::test]
async fn targets_are_accepted_and_reported_once() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &[]);
    let target =
        ", targets: [{name: t, action: Suspend, ref: {apiVersion: batch/v1, kind: CronJob, name: c}}]";
    // Suspending a CronJob needs time to stop, which a lease of 10 s does not leave.
    let quorum = quorum(&masters, "").replace("maxLeaseDurationSeconds: 10", "maxLeaseDurationSeconds: 120");
    folder.write("quorum.yaml", &quorum);
    folder.write(
        "a.yaml",
        &lock("a", target).replace(", leaseDurationSeconds: 10", ""),
    );
    let mut replica = Replica::start("r", &folder);
    let line = replica.child.wait_for_line(BOUND, "targets are not enforced");
    assert!(line.contains("LeaderLock ns/a"), "{line}");
    folder.write("b.yaml", "{}");
    replica.child.wait_for_line(BOUND, "b.yaml");
    let times = replica
        .child
        .stderr()
        .iter()
        .filter(|line| line.contains("targets are not enforced"))
        .count();
    assert_eq!(times, 1);
}
