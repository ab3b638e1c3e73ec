//! Tests docs/protocol.md, section 12.1: the registers of a lock about its last holder.

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncCommands as _;
use redlock_client::lease::{DeclaredDelay, FencingToken, Mark, Marks, UNDECLARED_DELAY, Won};
use redlock_client::masters::{Command, Completion, LeaseAttempt};

use crate::fence::eventually_marked;
use crate::lease::{eventually_values, three};
use crate::seal::{raw, register};
use redlock_testkit::masters::{LONGEST_LEASE, Opened, config, identity, lock_name, open};
use redlock_testkit::{RedisServers, ServerOptions};

const HELD: Mark = Mark::Held {
    delay: Duration::from_secs(7),
};

fn declared(token: FencingToken, milliseconds: u64) -> DeclaredDelay {
    DeclaredDelay {
        token: token.0,
        milliseconds,
    }
}

async fn acquire(masters: &Opened, holder: &str) -> (Arc<LeaseAttempt>, Won) {
    let attempt = Arc::new(LeaseAttempt::new(masters.stem(&identity(holder)), LONGEST_LEASE));
    let request = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: LONGEST_LEASE,
    };
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Completion::Won(won) => (attempt, won),
        other => panic!("{other:?}"),
    }
}

async fn done(masters: &Opened, request: Command) -> bool {
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Completion::Done { majority, .. } => majority,
        other => panic!("{other:?}"),
    }
}

async fn mark(masters: &Opened, attempt: &Arc<LeaseAttempt>, token: FencingToken, mark: Mark) -> bool {
    done(
        masters,
        Command::Mark {
            attempt: attempt.clone(),
            token,
            mark,
        },
    )
    .await
}

async fn release(masters: &Opened, servers: &RedisServers, attempt: Arc<LeaseAttempt>) {
    assert!(done(masters, Command::Release { attempt }).await);
    eventually_values(servers, "a/b", 0).await;
}

#[tokio::test]
async fn a_lock_that_was_never_held_ended_cleanly() {
    let (_servers, masters) = three().await;
    let (_, won) = acquire(&masters, "first").await;
    // `init` writes no floor for the marks: no target can be running.
    assert_eq!(won.marks, Marks::default());
    assert!(!won.marks.ended_uncleanly());
}

#[tokio::test]
async fn a_silent_holder_with_targets_ended_uncleanly_also_for_a_newcomer() {
    let (servers, masters) = three().await;
    let (attempt, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &attempt, won.token, HELD).await);
    // The holder dies. The test deletes its lease instead of waiting for the end.
    release(&masters, &servers, attempt).await;
    let newcomer = open(&config(&servers));
    newcomer.voters(3).await;
    let (_, next) = acquire(&newcomer, "next").await;
    assert_eq!(
        next.marks,
        Marks {
            held: won.token.0,
            clean: 0,
            delay: declared(won.token, 7_000),
        }
    );
    assert!(next.marks.ended_uncleanly());
}

#[tokio::test]
async fn a_confirmed_stop_is_written_with_the_same_token_and_ends_it_cleanly() {
    let (servers, masters) = three().await;
    let (attempt, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &attempt, won.token, HELD).await);
    assert!(mark(&masters, &attempt, won.token, Mark::Clean).await);
    release(&masters, &servers, attempt).await;
    let (_, next) = acquire(&masters, "next").await;
    assert_eq!(
        next.marks,
        Marks {
            held: won.token.0,
            clean: won.token.0,
            delay: declared(won.token, 7_000),
        }
    );
    assert!(!next.marks.ended_uncleanly());
}

/// Trace of P-82: the lease never reached the third master, and the next win counts the replies of that one and one
/// other master.
#[tokio::test]
async fn clean_end_is_on_record_where_the_lease_never_was() {
    let (servers, masters) = three().await;
    let (attempt, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    let _: i64 = raw(&servers[2]).await.del("redlock:lease:a/b").await.unwrap();
    assert!(mark(&masters, &attempt, won.token, HELD).await);
    assert!(mark(&masters, &attempt, won.token, Mark::Clean).await);
    release(&masters, &servers, attempt).await;
    assert_eq!(register(&servers[2], "held:a/b").await, None);
    servers[1].pause().unwrap();
    let (_, next) = acquire(&masters, "next").await;
    servers[1].resume().unwrap();
    assert!(!next.marks.ended_uncleanly(), "{next:?}");
}

#[tokio::test]
async fn clean_end_needs_the_lease_on_a_majority() {
    let (servers, masters) = three().await;
    let (attempt, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &attempt, won.token, HELD).await);
    for server in &servers[1..] {
        let _: i64 = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    assert!(!mark(&masters, &attempt, won.token, Mark::Clean).await);
    eventually_marked(&servers, "clean:a/b", &won.token.0.to_string()).await;
}

#[tokio::test]
async fn only_the_lease_that_is_mine_is_marked_and_a_lost_attempt_touches_nothing() {
    let (servers, masters) = three().await;
    let (mine, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    let theirs = Arc::new(LeaseAttempt::new(masters.stem(&identity("other")), LONGEST_LEASE));
    let request = Command::Acquire {
        attempt: theirs.clone(),
        lease_duration: LONGEST_LEASE,
    };
    let lost = masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap();
    assert!(matches!(lost, Completion::NotWon(_)), "{lost:?}");
    assert!(!mark(&masters, &theirs, FencingToken(won.token.0 + 1), HELD).await);
    for server in servers.iter() {
        assert_eq!(register(server, "held:a/b").await, None);
    }
    assert!(mark(&masters, &mine, won.token, HELD).await);
}

#[tokio::test]
async fn a_register_never_falls() {
    let (servers, masters) = three().await;
    let (attempt, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &attempt, won.token, HELD).await);
    assert!(
        mark(&masters, &attempt, FencingToken(1), HELD).await,
        "acknowledged: it is at least that"
    );
    let mut kept = 0;
    for server in servers.iter() {
        kept += usize::from(register(server, "held:a/b").await == Some(won.token.0.to_string()));
    }
    assert!(kept >= 2, "{kept} of 3");
}

#[tokio::test]
async fn after_a_total_loss_every_lock_counts_as_ended_uncleanly_once() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    servers.iter().for_each(|server| server.restart_empty().unwrap());
    masters.voters(0).await;
    masters.voters(3).await;
    let (_, won) = acquire(&masters, "first").await;
    assert!(won.marks.ended_uncleanly(), "{won:?}");
    assert_eq!(
        won.marks.takeover_delay(None, Duration::ZERO).length,
        UNDECLARED_DELAY
    );
    assert!(
        won.token.0 > won.marks.held,
        "the floor of the counter is the floor of `held`"
    );
}

#[tokio::test]
async fn declared_delay_rises_under_one_token_and_is_replaced_under_the_next() {
    let (servers, masters) = three().await;
    let held = |seconds| Mark::Held {
        delay: Duration::from_secs(seconds),
    };
    let (attempt, first) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    for seconds in [7, 20, 5] {
        assert!(mark(&masters, &attempt, first.token, held(seconds)).await);
    }
    release(&masters, &servers, attempt).await;
    let (attempt, second) = acquire(&masters, "second").await;
    assert_eq!(second.marks.delay, declared(first.token, 20_000));
    assert_eq!(second.marks.declared_delay(), Some(Duration::from_secs(20)));
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &attempt, second.token, held(5)).await);
    release(&masters, &servers, attempt).await;
    let (_, third) = acquire(&masters, "third").await;
    assert_eq!(third.marks.declared_delay(), Some(Duration::from_secs(5)));
}
