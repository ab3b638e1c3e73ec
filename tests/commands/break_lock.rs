//! Tests `redlock break`.

use std::time::Duration;

use redlock::masters::{Acquired, Agreement, Lease, Renewal, adopt};

use crate::program::{quorum, redlock, redlock_until};
use redlock_testkit::masters::{acquire_soon_for, config, identity, lock_name};
use redlock_testkit::{admin, eventually};

const BOUND: Duration = Duration::from_secs(60);

/// Renews a lease until a majority of the masters answers.
async fn renewed(lease: &mut Lease) -> Renewal {
    eventually(BOUND, "a majority answers", async || {
        match lease.renew().await.unwrap() {
            Renewal::Undecided => Err(()),
            decided => Ok(decided),
        }
    })
    .await
}

#[tokio::test]
async fn the_holder_is_refused_at_its_next_renewal_and_no_other_client_acquires() {
    let (servers, urls) = quorum();
    let adopted = adopt(config(&servers), Agreement::Majority).await.unwrap();
    let (masters, _notices, _tasks) = adopted.open().unwrap();
    masters
        .wait_for_first_poll(Duration::from_secs(20), |_| false)
        .await;
    let (lock, lease_duration) = (lock_name("l"), Duration::from_secs(60));
    let mut lease = acquire_soon_for(&masters, "l", "me", lease_duration).await;

    redlock_until(
        &["break", "l", "--masters", &urls],
        64,
        &[
            "held by me of cluster test/test",
            "60.0 s",
            "nothing was done",
            "--yes",
        ],
    );
    redlock(&["break", "l", "--yes", "--masters", &urls]).expect(64, &["--reason"]);
    redlock(&["break", "l", "--yes", "--reason", " ", "--masters", &urls]).expect(64, &["--reason is empty"]);
    assert_eq!(renewed(&mut lease).await, Renewal::Renewed, "so far only words");

    servers[1].pause().unwrap();
    redlock_until(
        &["break", "l", "--yes", "--reason", "INC-42", "--masters", &urls],
        0,
        &[
            "held by me",
            "reason: INC-42",
            "m0 (redis://",
            "): reserved for no candidate",
            "not reserved: not connected",
            "can be taken again at 2",
        ],
    );
    servers[1].resume().unwrap();
    for server in [&servers[0], &servers[2]] {
        let lease: Option<String> = admin(server, &["GET", "redlock:lease:l"]).await;
        assert!(lease.is_some(), "no lease is deleted");
        let left: i64 = admin(server, &["PTTL", "redlock:reserved:l"]).await;
        assert!((50_000..=60_000).contains(&left), "{left}");
    }
    assert_eq!(renewed(&mut lease).await, Renewal::Lost);
    drop(lease);
    let again = masters
        .acquire(&lock, &identity("you"), lease_duration)
        .await
        .unwrap();
    assert!(matches!(again, Acquired::Lost(_)));
    redlock_until(&["status", "l", "--masters", &urls], 0, &["nobody, "]);
}

#[test]
fn without_a_majority_it_is_not_broken() {
    let (servers, urls) = quorum();
    servers[0].kill();
    servers[1].kill();
    redlock(&["break", "l", "--yes", "--reason", "x", "--masters", &urls]).expect(
        69,
        &[
            "no majority of the masters answers",
            "m0 (redis://127.0.0.1:",
            "m2 (redis://127.0.0.1:",
        ],
    );
}
