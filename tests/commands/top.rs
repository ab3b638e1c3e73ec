//! Tests `redlock top`.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::Signal;

use crate::program::{quorum, redlock, redlock_until};
use redlock_testkit::{ChildGuard, eventually_blocking};

const BOUND: Duration = Duration::from_secs(60);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    crate::common::forget_variables(&mut command);
    command.args(arguments).stdin(Stdio::null());
    command
}

#[test]
fn without_a_terminal_the_tables_follow_each_other() {
    let (servers, urls) = quorum();
    let arguments = [
        "top",
        "--interval",
        "50ms",
        "--count",
        "3",
        "a/b",
        "--masters",
        &urls,
    ];
    let shown = ["LOCK", "a/b", "3 of 3 masters vote", "no change was seen"];
    let ran = redlock_until(&arguments, 0, &shown);
    // A master that answers late is missing in one of the tables.
    assert_eq!(ran.stdout.matches(" of 3 masters vote").count(), 3, "{ran:#?}");
    assert!(!ran.stdout.contains('\x1b'), "{ran:#?}");

    for server in &servers[1..] {
        server.pause().unwrap();
    }
    redlock(&["top", "--count", "1", "a/b", "--masters", &urls]).expect(69, &["a/b", "unknown"]);
    redlock(&["top", "--count", "0", "--masters", &urls]).expect(64, &["--count"]);
    redlock(&["top", "--interval", "1", "--masters", &urls]).expect(64, &["15s, 1500ms, 2m or 1m30s"]);
}

#[test]
fn the_timeline_shows_a_takeover_while_it_runs() {
    let (_servers, urls) = quorum();
    let mut top = ChildGuard::spawn(
        "top",
        &mut command(&["top", "--interval", "100ms", "a/b", "--masters", &urls]),
    );
    top.wait_for_line(BOUND, "no change was seen");
    let run = [
        "run",
        "a/b",
        "-w",
        "60",
        "--identity",
        "the-holder",
        "--masters",
        &urls,
        "--",
        "sleep",
        "600",
    ];
    let _holder = ChildGuard::spawn("run", &mut command(&run));
    let line = top.wait_for_line(BOUND, "a/b  held by the-holder");
    assert!(line.contains("token ") && line.contains('Z'), "{line}");
    top.signal(Signal::SIGTERM);
    assert_eq!(top.wait(BOUND).0.code(), Some(0));
}

#[test]
fn at_a_terminal_it_draws_in_place_and_gives_the_cursor_back() {
    let (_servers, urls) = quorum();
    let pty = openpty(None, None).unwrap();
    let mut top = command(&["top", "--interval", "100ms", "a/b", "--masters", &urls])
        .stdout(Stdio::from(pty.slave))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = File::from(pty.master);
    let screen = Arc::<Mutex<String>>::default();
    let shown = screen.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            shown.lock().unwrap().push_str(&text);
        }
    });
    let shows = |what: &str, wanted: &dyn Fn(&str) -> bool| {
        eventually_blocking(BOUND, what, || {
            let screen = screen.lock().unwrap().clone();
            if wanted(&screen) { Ok(()) } else { Err(screen) }
        });
    };
    shows("two frames without a cursor", &|screen| {
        screen.starts_with("\x1b[?25l") && screen.matches("\x1b[H").count() >= 2 && screen.contains("a/b")
    });
    let process = nix::unistd::Pid::from_raw(i32::try_from(top.id()).unwrap());
    nix::sys::signal::kill(process, Signal::SIGINT).unwrap();
    shows("the cursor", &|screen| screen.contains("\x1b[?25h"));
    let ended = eventually_blocking(BOUND, "it ends", || top.try_wait().unwrap().ok_or("it runs"));
    assert_eq!(ended.code(), Some(0));
}
