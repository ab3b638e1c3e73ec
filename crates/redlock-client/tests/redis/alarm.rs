//! Tests docs/protocol.md, P-40: the timers of the locks of an elector count the time of a suspend.

use std::{fs, sync::Arc, time::Duration};

use redlock_client::clock;
use redlock_client::elector::{Elector, Silent};
use redlock_client::lease::{ReleaseMode, Terms, Timings};

use crate::lease::three;
use crate::seal::BOUND;
use redlock_testkit::eventually;
use redlock_testkit::masters::{LONGEST_LEASE, Opened, config, identity, lock_name};

/// Returns what the kernel shows of the timers of this process.
fn timers() -> Vec<String> {
    let files = fs::read_dir("/proc/self/fdinfo").unwrap();
    let shown = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    shown.filter(|text| text.contains("clockid:")).collect()
}

#[tokio::test]
async fn the_timers_of_an_elector_run_on_the_boot_time_clock() {
    let (servers, opened) = three().await;
    let cluster = config(&servers).cluster;
    let Opened {
        masters,
        notices,
        tasks: _tasks,
    } = opened;
    let (elector, _task) = Elector::start(masters, notices, identity("me"), Arc::new(Silent));
    let timings = Timings {
        lease_duration: LONGEST_LEASE,
        renew_deadline: LONGEST_LEASE / 2,
        retry_period: Duration::from_millis(500),
        stop: Duration::ZERO,
    };
    let lock = lock_name("a/b");
    elector.put(lock.clone(), Terms::of_own_work(cluster, timings));
    eventually(BOUND, "the lock is held", async || {
        let seen = elector.watch(&lock).ok_or("not contended for")?;
        let held = seen.borrow().authority_at(clock::now());
        held.ok_or("not held")
    })
    .await;
    // CLOCK_BOOTTIME, an absolute time, armed.
    eventually(BOUND, "a timer of the next renewal", async || {
        let shown = timers();
        let armed = |text: &&String| {
            text.contains("clockid: 7")
                && text.contains("settime flags: 01")
                && !text.contains("it_value: (0, 0)")
        };
        if shown.iter().any(|text| armed(&text)) {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;
    elector.remove(lock, ReleaseMode::Release);
}
