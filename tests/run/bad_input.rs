//! Tests that a message names each invalid input and the expected value.

use crate::program::redlock;
use crate::wrapper::{BOUND, Quorum};
use redlock_testkit::eventually_blocking;

const MASTERS: [&str; 2] = ["--masters", "redis://a:1,redis://b:1,redis://c:1"];

#[test]
fn a_command_line_that_cannot_be_understood_is_64() {
    for (arguments, texts) in [
        (&["run"][..], &["LOCK"][..]),
        (&["run", "l"], &["COMMAND"]),
        (&["run", "l", "true"], &["true", "--"]),
        (&["run", "l", "-c", "true", "--", "true"], &["--command"]),
        (&["run", "a b", "--", "true"], &["a b", "white space"]),
        (
            &["run", "_reporter/x", "--", "true"],
            &["_reporter/x", "redlock itself"],
        ),
        (
            &["run", "l", "-n", "-w", "1", "--", "true"],
            &["--nonblock", "--timeout"],
        ),
        (
            &["run", "l", "-w", "soon", "--", "true"],
            &["soon", "write 10 or 0.5"],
        ),
        (&["run", "l", "-w=-1", "--", "true"], &["-1", "write 10 or 0.5"]),
        (
            &["run", "l", "-E", "256", "--", "true"],
            &["256", "--conflict-exit-code"],
        ),
        (
            &["run", "l", "--stop-signal", "STOP", "--", "true"],
            &["STOP", "TERM, INT or 15"],
        ),
        (
            &["run", "l", "--stop-signal", "WHAT", "--", "true"],
            &["WHAT", "TERM, INT or 15"],
        ),
        (
            &["run", "l", "--lease-duration", "15", "--", "true"],
            &["15", "write 15s"],
        ),
        (
            &["run", "l", "--log-level", "loud", "--", "true"],
            &["loud", "debug"],
        ),
    ] {
        redlock(
            &[
                &arguments[..2.min(arguments.len())],
                &MASTERS,
                &arguments[2.min(arguments.len())..],
            ]
            .concat(),
        )
        .expect(64, texts);
    }
    redlock(&["run", "l", "--", "true"]).expect(64, &["no masters given"]);
    redlock(&["run", "--help"]).expect(0, &["Examples", "redlock run", "--masters", "79"]);
}

#[test]
fn unusable_configuration_exits_with_78() {
    redlock(&["run", "l", "--masters", "redis://a:1,redis://b:1", "--", "true"])
        .expect(78, &["2 masters given", "1, 3, 5 or 7"]);
    redlock(&["run", "l", "--config", "/nonexistent", "--", "true"]).expect(78, &["/nonexistent"]);
}

#[test]
fn times_that_do_not_fit_name_the_expected_ones() {
    let quorum = Quorum::start();
    let with = |flags: &[&str]| {
        redlock(
            &[
                &["run", "l", "--masters", &quorum.urls],
                flags,
                &["--", "echo", "ran"],
            ]
            .concat(),
        )
    };
    with(&["--lease-duration", "1s"]).expect(78, &["--lease-duration 1 s is shorter than 2 s"]);
    with(&["--lease-duration", "90s"]).expect(78, &["--lease-duration 90 s is longer than 60 s"]);
    with(&["--lease-duration", "3s", "--stop-grace", "2s"]).expect(
        78,
        &[
            "--lease-duration 3 s does not leave 2 s to stop",
            "a lease of 30 s would be enough",
            "--stop-grace",
        ],
    );
    with(&["--stop-grace", "50s"]).expect(78, &["--stop-grace", "quorum's longest is 60 s"]);
    for fits in [
        &[][..],
        &["--lease-duration", "2s"],
        &["--lease-duration", "3s"],
        &["--stop-grace", "30s"],
    ] {
        // A busy machine loses a lease of 2 s.
        eventually_blocking(BOUND, "it ran", || {
            let ran = with(&[fits, &["-w", "60"]].concat());
            if ran.code == Some(79) {
                return Err(ran);
            }
            ran.expect(0, &["ran"]);
            Ok(())
        });
    }
}
