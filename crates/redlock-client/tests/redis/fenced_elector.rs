//! Tests docs/protocol.md, section 15: the elector holds a fenced lock.

use std::{sync::Arc, time::Duration};

use redlock_client::clock;
use redlock_client::elector::{Elector, Silent};
use redlock_client::lease::{FencingToken, Mark, ReleaseMode, Terms, Timings};

use crate::fence::{eventually_marked, eventually_reserved};
use crate::lease::{PATIENT, eventually_values};
use crate::seal::{BOUND, register};
use redlock_testkit::masters::{Opened, config, identity, lock_name, open};
use redlock_testkit::{RedisServers, ServerOptions, eventually};

#[tokio::test]
async fn an_elector_marks_a_fenced_lock_and_releases_it_after_a_confirmed_stop_only() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let mut here = config(&servers);
    here.longest_lease = Duration::from_secs(400);
    // The mark and the renewal after it must reach every master, even on a busy machine.
    here.command_timeout = PATIENT;
    let opened = open(&here);
    opened.seal(&servers).await;
    let Opened {
        masters,
        notices,
        tasks: _tasks,
    } = opened;
    let (elector, _task) = Elector::start(masters, notices, identity("me"), Arc::new(Silent));
    // After its first renewal, the elector renews again later than the longest wait of this test.
    let timings = Timings {
        lease_duration: Duration::from_secs(300),
        renew_deadline: Duration::from_secs(250),
        ..Timings::derive(Duration::ZERO)
    };
    let terms = Terms {
        fenced: true,
        ..Terms::of_own_work(here.cluster.clone(), timings)
    };
    let lock = lock_name("a/b");
    elector.put(lock.clone(), terms);
    let token = async |than: FencingToken| {
        eventually(BOUND, "the lock is held", async || {
            let seen = elector.watch(&lock).ok_or("not contended for")?;
            let held = seen.borrow().authority_at(clock::now());
            held.map(|authority| authority.token)
                .filter(|token| *token > than)
                .ok_or("not held")
        })
        .await
    };
    let first = token(FencingToken(0)).await;
    let held = Mark::Held {
        delay: Duration::from_secs(1),
    };
    assert!(elector.mark(lock.clone(), first, held).await);
    // The win needs a majority; the renewal after the mark reaches the others.
    eventually_values(&servers, "a/b", 3).await;
    eventually_reserved(&servers, Some(&here.cluster.to_string()), 240_000..305_001).await;
    assert!(elector.mark(lock.clone(), first, Mark::Closed).await);
    eventually_marked(&servers, "closed:a/b", &first.to_string()).await;
    assert!(elector.mark(lock.clone(), first, Mark::Clean).await);
    elector.remove(lock.clone(), ReleaseMode::Release);
    eventually_values(&servers, "a/b", 0).await;
    eventually_reserved(&servers, None, -2..-1).await;
    let mark = register(&servers[0], "slot:a/b/!mark").await.unwrap();
    assert!(mark.starts_with(&format!("{first}|{first},")), "{mark}");
}
