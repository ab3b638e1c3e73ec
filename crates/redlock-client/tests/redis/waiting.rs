//! Tests that a bounded wait that fails reports the last state.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use redlock_testkit::{ChildGuard, eventually, eventually_blocking};

const SHORT: Duration = Duration::from_millis(50);
const BOUND: Duration = Duration::from_secs(30);

fn shell(script: &str) -> ChildGuard {
    ChildGuard::spawn("shell", Command::new("sh").args(["-c", script]))
}

#[tokio::test]
#[should_panic(expected = "the answer: not within 50ms; last seen: Some(\"41\")")]
async fn a_wait_in_vain_names_the_last_observation() {
    eventually(SHORT, "the answer", async || Err::<(), _>("41")).await;
}

#[tokio::test]
#[should_panic(expected = "the answer: not within 50ms; the last question hung")]
async fn a_question_that_hangs_is_given_up() {
    eventually(SHORT, "the answer", async || {
        std::future::pending::<Result<(), ()>>().await
    })
    .await;
}

#[test]
#[should_panic(expected = "the answer: not within 50ms; last seen: 41")]
fn blocking_wait_names_the_last_observation() {
    eventually_blocking(SHORT, "the answer", || Err::<(), _>(41));
}

#[test]
fn the_lines_of_a_child_are_kept_apart_and_its_end_is_seen() {
    let mut child = shell("echo out; echo err >&2; exit 3");
    let (status, _) = child.wait(BOUND);
    assert_eq!(status.code(), Some(3));
    assert_eq!(
        (child.stdout(), child.stderr()),
        (vec!["out".to_owned()], vec!["err".to_owned()])
    );
    assert_eq!(child.wait_for_line(BOUND, "er"), "err", "also after the end");
}

#[test]
#[should_panic(expected = "it ended with exit status: 0 without")]
fn a_child_that_ends_without_the_line_fails_at_once() {
    shell("echo out").wait_for_line(10 * BOUND, "never");
}

#[test]
fn a_signal_reaches_the_child() {
    let mut child = shell("trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    child.wait_for_line(BOUND, "ready");
    child.signal(Signal::SIGTERM);
    assert!(child.wait(BOUND).0.success());
    assert_eq!(child.stdout(), ["ready", "term"]);
}
