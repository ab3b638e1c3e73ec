//! Design §3, "Clean or unclean" and "Registers and slots": what the registers of a lock say of its last holder.

use std::sync::Arc;
use std::time::Duration;

use redlock::lease::{DeclaredDelay, FencingToken, Mark, Marks, UNDECLARED_DELAY, Won};
use redlock::masters::{Delivery, Request, Tenure};

use crate::common::masters::{LONGEST_LEASE, Opened, config, identity, lock_name, open};
use crate::common::{RedisServers, ServerOptions};
use crate::lease::{eventually_values, three};
use crate::seal::register;

const HELD: Mark = Mark::Held {
    delay: Duration::from_secs(7),
};

fn declared(token: FencingToken, milliseconds: u64) -> DeclaredDelay {
    DeclaredDelay {
        token: token.0,
        milliseconds,
    }
}

async fn acquire(masters: &Opened, holder: &str) -> (Arc<Tenure>, Won) {
    let tenure = Arc::new(Tenure::new(masters.stem(&identity(holder)), LONGEST_LEASE));
    let request = Request::Acquire {
        tenure: tenure.clone(),
        lease_duration: LONGEST_LEASE,
    };
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Delivery::Won(won) => (tenure, won),
        other => panic!("{other:?}"),
    }
}

async fn done(masters: &Opened, request: Request) -> bool {
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Delivery::Done { majority, .. } => majority,
        other => panic!("{other:?}"),
    }
}

async fn mark(masters: &Opened, tenure: &Arc<Tenure>, token: FencingToken, mark: Mark) -> bool {
    done(
        masters,
        Request::Mark {
            tenure: tenure.clone(),
            token,
            mark,
        },
    )
    .await
}

async fn release(masters: &Opened, servers: &RedisServers, tenure: Arc<Tenure>) {
    assert!(done(masters, Request::Release { tenure }).await);
    eventually_values(servers, "a/b", 0).await;
}

#[tokio::test]
async fn a_lock_that_was_never_held_ended_cleanly() {
    let (_servers, masters) = three().await;
    let (_, won) = acquire(&masters, "first").await;
    // `init` writes no floor for them: nothing can be running.
    assert_eq!(won.marks, Marks::default());
    assert!(!won.marks.ended_uncleanly());
}

#[tokio::test]
async fn a_holder_with_targets_that_says_nothing_more_ended_uncleanly_also_for_a_newcomer() {
    let (servers, masters) = three().await;
    let (tenure, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &tenure, won.token, HELD).await);
    // It dies; its lease is deleted here, so that the test need not wait for its end.
    release(&masters, &servers, tenure).await;
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
    let (tenure, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &tenure, won.token, HELD).await);
    assert!(mark(&masters, &tenure, won.token, Mark::Clean).await);
    release(&masters, &servers, tenure).await;
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

#[tokio::test]
async fn only_the_lease_that_is_mine_is_marked_and_a_lost_attempt_touches_nothing() {
    let (servers, masters) = three().await;
    let (mine, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    let theirs = Arc::new(Tenure::new(masters.stem(&identity("other")), LONGEST_LEASE));
    let request = Request::Acquire {
        tenure: theirs.clone(),
        lease_duration: LONGEST_LEASE,
    };
    let lost = masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap();
    assert!(matches!(lost, Delivery::NotWon(_)), "{lost:?}");
    assert!(!mark(&masters, &theirs, FencingToken(won.token.0 + 1), HELD).await);
    for server in servers.iter() {
        assert_eq!(register(server, "held:a/b").await, None);
    }
    assert!(mark(&masters, &mine, won.token, HELD).await);
}

#[tokio::test]
async fn a_register_never_falls() {
    let (servers, masters) = three().await;
    let (tenure, won) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &tenure, won.token, HELD).await);
    assert!(
        mark(&masters, &tenure, FencingToken(1), HELD).await,
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
    // No `init`: sealed by the fallback, after the wait.
    masters.voters(3).await;
    let (_, won) = acquire(&masters, "first").await;
    assert!(won.marks.ended_uncleanly(), "{won:?}");
    assert_eq!(won.marks.takeover_delay(None, Duration::ZERO), UNDECLARED_DELAY);
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
    let (tenure, first) = acquire(&masters, "first").await;
    eventually_values(&servers, "a/b", 3).await;
    for seconds in [7, 20, 5] {
        assert!(mark(&masters, &tenure, first.token, held(seconds)).await);
    }
    release(&masters, &servers, tenure).await;
    let (tenure, second) = acquire(&masters, "second").await;
    assert_eq!(second.marks.delay, declared(first.token, 20_000));
    assert_eq!(second.marks.declared_delay(), Some(Duration::from_secs(20)));
    eventually_values(&servers, "a/b", 3).await;
    assert!(mark(&masters, &tenure, second.token, held(5)).await);
    release(&masters, &servers, tenure).await;
    let (_, third) = acquire(&masters, "third").await;
    assert_eq!(third.marks.declared_delay(), Some(Duration::from_secs(5)));
}
