//! Tests that the operator runs from the image as in a restricted pod.

use std::fs;

use crate::common::http;
use crate::container::{Container, status, text_of};
use crate::replica::{BOUND, lock, masters, quorum};
use redlock_testkit::{eventually_blocking, free_port};

#[test]
#[ignore = "builds the image: `make test-image`"]
fn the_program_prints_its_version() {
    let output = Container::new().run(&["--version"]);
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(
        text_of(&output).contains(env!("CARGO_PKG_VERSION")),
        "{}",
        text_of(&output)
    );
}

#[tokio::test]
#[ignore = "builds the image: `make test-image`"]
async fn the_operator_holds_a_lock_without_rights_and_without_writing() {
    let masters = masters(3).await;
    let container = Container::new();
    container.write("manifests/quorum.yaml", &quorum(&masters, ""));
    container.write("manifests/a.yaml", &lock("a", ""));
    let port = free_port().unwrap();
    let listen = format!("127.0.0.1:{port}");
    let operator = [
        "operator",
        "--standalone",
        "/manifests",
        "--identity",
        "one",
        "--listen",
        &listen,
    ];
    let mut operator = container.start("operator", &operator);
    operator.wait_for_line(BOUND, "operator started");
    eventually_blocking(BOUND, "it is active", || match http::get(port, "/locks") {
        Ok((200, body)) if body.contains("\"Active\"") => Ok(()),
        other => Err(other),
    });

    let pid = operator.pid();
    assert_eq!(status(pid, "Uid"), "65532\t65532\t65532\t65532");
    assert_eq!(status(pid, "Gid"), "65532\t65532\t65532\t65532");
    assert_eq!(status(pid, "Groups"), "");
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    for kind in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, kind), "0000000000000000", "{kind}");
    }
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(4) == Some("/"))
        .expect("its root is a mount");
    assert!(
        root.split(' ')
            .nth(5)
            .unwrap()
            .split(',')
            .any(|option| option == "ro"),
        "{root}"
    );
    let (code, body) = http::get(port, "/metrics").unwrap();
    assert_eq!(code, 200);
    assert!(
        body.contains("redlock_lock_held{lock_namespace=\"ns\",lock=\"a\",cluster=\"local\"} 1"),
        "{body}"
    );
}
