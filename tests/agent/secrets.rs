//! Tests that no secret is ever printed, and that a wrong one is reported.

use nix::sys::signal::Signal;

use crate::fixture::{Agent, BOUND};
use crate::program::init;
use redlock_testkit::{RedisServers, ServerOptions, eventually_blocking};

const PASSWORD: &str = "xyzzy-plugh-0451";

#[test]
fn the_password_is_in_no_log_metric_or_answer() {
    let options = ServerOptions {
        password: Some(PASSWORD.into()),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = servers.urls().join(",");
    init(&servers, &[], &[("REDLOCK_PASSWORD", PASSWORD)]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{PASSWORD}\n")).unwrap();
    let mut one = Agent::start_with("one", &urls, |command| {
        command
            .args(["--log-level", "trace", "--password-file"])
            .arg(file.path());
    });
    one.wait_active();
    let mut all = String::new();
    for path in ["/", "/v1/lock", "/v1/active", "/livez", "/readyz", "/metrics"] {
        all += &one.get(path).1;
    }
    servers[0].kill();
    eventually_blocking(BOUND, "the lost master is reported", || {
        let body = one.get("/readyz").1;
        body.contains("\"voting\":2").then_some(()).ok_or(body)
    });
    all += &one.get("/readyz").1;
    one.child.signal(Signal::SIGTERM);
    one.child.wait(BOUND);
    all += &one.child.stderr().join("\n");
    all += &one.child.stdout().join("\n");
    assert!(all.contains("agent ended"));
    assert!(!all.contains(PASSWORD), "a password was shown");

    // The password may be rotated on the masters any time, so the agent does not end.
    let mut wrong = Agent::start_with("wrong", &urls, |command| {
        command.env("REDLOCK_PASSWORD", "distinctly-wrong");
    });
    wrong.child.wait_for_line(BOUND, "WRONGPASS");
    eventually_blocking(BOUND, "/readyz reports it", || match wrong.get("/readyz") {
        (503, body) if body.contains("WRONGPASS") => Ok(()),
        other => Err(other),
    });
    assert_eq!(wrong.get("/v1/active").0, 503);
    wrong.wait_alive();
    let output = wrong.child.stderr().join("\n") + &wrong.get("/readyz").1;
    assert!(!output.contains("distinctly-wrong"), "{output}");
}
