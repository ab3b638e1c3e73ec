//! Tests that no secret is ever printed.

use nix::sys::signal::Signal;
use redlock::masters::{Credentials, Secret};

use crate::replica::{BOUND, Folder, Replica, lock, quorum, seal, servers_with};
use redlock_testkit::{ServerOptions, eventually_blocking};

const PASSWORD: &str = "xyzzy-plugh-0451";

#[tokio::test]
async fn no_password_is_in_a_log_a_metric_or_an_answer() {
    let options = ServerOptions {
        users: vec![format!("app on >{PASSWORD} ~* &* +@all")],
        password: Some("unused".into()),
        ..ServerOptions::default()
    };
    let servers = servers_with(3, &options);
    let credentials = Credentials {
        username: Some("app".into()),
        password: Some(Secret::new(PASSWORD.into())),
        ..Credentials::default()
    };
    seal(&servers, credentials).await;
    let auth = "  auth: {secretRef: {name: s, namespace: n}}\n";
    let folder = Folder::new(&[
        ("quorum.yaml", &quorum(&servers, auth)),
        ("a.yaml", &lock("a", "")),
        // This url has a password, which is not allowed there.
        (
            "url.yaml",
            &format!(
                "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: url}}\nspec: {{masters: [\
                 {{name: a, url: \"redis://app:{PASSWORD}@h:1\"}}, {{name: b, url: \"redis://h:2\"}}, \
                 {{name: c, url: \"redis://h:3\"}}]}}\n"
            ),
        ),
    ]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{PASSWORD}\n")).unwrap();
    let mut replica = Replica::start_with("r", &folder, |c| {
        c.args(["--username", "app", "--log-level", "trace", "--password-file"])
            .arg(file.path());
    });
    replica.wait_active("a");
    replica.child.wait_for_line(BOUND, "url.yaml");
    let mut all = String::new();
    for path in ["/livez", "/readyz", "/locks", "/metrics"] {
        all += &replica.get(path).1;
    }
    // The errors of a master must not contain the password either.
    servers[0].kill();
    eventually_blocking(BOUND, "the lost master is reported", || {
        let body = replica.get("/readyz").1;
        body.contains("\"voting\":2").then_some(()).ok_or(body)
    });
    all += &replica.get("/readyz").1;
    all += &replica.get("/metrics").1;
    replica.child.signal(Signal::SIGTERM);
    replica.child.wait(BOUND);
    all += &replica.child.stderr().join("\n");
    all += &replica.child.stdout().join("\n");
    assert!(all.contains("operator ended"));
    assert!(!all.contains(PASSWORD), "a password was shown");
}
