//! Reviews bearer tokens with the API server: the user of a token (TokenReview), and whether that user may
//! get a path (SubjectAccessReview). Answers are cached for a short time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use ring::digest::{SHA256, digest};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    clock,
    lease::BootInstant,
    operator::guarded::{Review, Reviewer},
    targets::deepest,
};

/// The lifetime of a cached permission: a revoked permission ends within this time.
const ALLOWED: Duration = Duration::from_secs(60);
/// The lifetime of a cached refusal: a new permission takes effect within this time.
const REFUSED: Duration = Duration::from_secs(5);
/// Capacity of the cache.
const KEPT: usize = 256;
/// The maximum number of concurrent reviews: a client that sends invented tokens must not load the API
/// server. The others wait in the order of their requests, of which the limit of connections bounds the number: invented tokens
/// delay a review, and do not prevent it.
const AT_ONCE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for a turn: together with the review shorter than the time limit of an answer.
const TURN: Duration = Duration::from_secs(3);

pub(super) struct Reviews {
    client: Client,
    /// The runtime of the client: the server of `/metrics` has its own thread, which must own no connection of the client.
    runtime: Handle,
    remembered: Mutex<Remembered>,
    asking: Semaphore,
}

impl Reviews {
    /// Call this on the runtime of the client.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            runtime: Handle::current(),
            remembered: Mutex::default(),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    async fn answer(&self, token: &str, path: &str) -> Review {
        if let Some(known) = self.with(|remembered| remembered.get(token, path, clock::now())) {
            return known;
        }
        let Some(_turn) = turn(&self.asking).await else {
            return Review::Unavailable;
        };
        // Requests with one token may have waited together.
        if let Some(known) = self.with(|remembered| remembered.get(token, path, clock::now())) {
            return known;
        }
        let asked = ask(self.client.clone(), token.to_owned(), path.to_owned());
        let asked = AbortOnDropHandle::new(self.runtime.spawn(time::timeout(PATIENCE, asked)));
        let review = match asked.await {
            Ok(Ok(Ok(review))) => review,
            Ok(Ok(Err(error))) => {
                tracing::warn!(
                    path,
                    reason = deepest(&error),
                    "a bearer token could not be reviewed"
                );
                Review::Unavailable
            }
            Ok(Err(_)) => Review::Unavailable,
            // The runtime ends.
            Err(_) => Review::Unavailable,
        };
        self.with(|remembered| remembered.put(token, path, &review, clock::now()));
        review
    }

    fn with<T>(&self, f: impl FnOnce(&mut Remembered) -> T) -> T {
        // No code that panics runs under this lock, so a poisoned lock is still consistent.
        f(&mut self.remembered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Reviewer for Reviews {
    fn review<'a>(&'a self, token: &'a str, path: &'a str) -> BoxFuture<'a, Review> {
        self.answer(token, path).boxed()
    }
}

async fn turn(asking: &Semaphore) -> Option<SemaphorePermit<'_>> {
    time::timeout(TURN, asking.acquire()).await.ok()?.ok()
}

async fn ask(client: Client, token: String, path: String) -> kube::Result<Review> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let reviewed = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    let status = reviewed.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Review::Unauthenticated);
    };
    let name = user.username.clone().unwrap_or_default();
    let review = SubjectAccessReview {
        spec: access_to(&path, user),
        ..SubjectAccessReview::default()
    };
    let reviewed = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    let allowed = reviewed
        .status
        .is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if allowed {
        Review::Allowed
    } else {
        Review::Forbidden(name)
    })
}

fn access_to(path: &str, user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        }),
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        ..SubjectAccessReviewSpec::default()
    }
}

/// SHA-256 of a token, so that the size of an entry does not depend on the client and memory holds no token.
type Hashed = [u8; 32];

fn hashed(token: &str) -> Hashed {
    let mut hashed = Hashed::default();
    // Both sides have 32 bytes, the length of SHA-256.
    hashed.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hashed
}

/// Cached answers by token and path, each with its expiry.
#[derive(Default)]
struct Remembered(HashMap<(Hashed, String), (BootInstant, Review)>);

impl Remembered {
    fn get(&self, token: &str, path: &str, now: BootInstant) -> Option<Review> {
        let (until, review) = self.0.get(&(hashed(token), path.to_owned()))?;
        (now < *until).then(|| review.clone())
    }

    fn put(&mut self, token: &str, path: &str, review: &Review, now: BootInstant) {
        let length = match review {
            Review::Allowed => ALLOWED,
            Review::Unauthenticated | Review::Forbidden(_) => REFUSED,
            Review::Unavailable => return,
        };
        self.0.retain(|_, (until, _)| now < *until);
        if self.0.len() >= KEPT {
            // Allowed tokens must stay when a client sends many invented ones.
            self.0.retain(|_, (_, review)| *review == Review::Allowed);
        }
        if self.0.len() < KEPT {
            let key = (hashed(token), path.to_owned());
            self.0.insert(key, (now + length, review.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    /// Invented tokens would otherwise make every review of a good one fail.
    #[tokio::test(start_paused = true)]
    async fn review_waits_for_its_turn_and_not_for_ever() {
        let turns = Semaphore::new(1);
        let first = turn(&turns).await.unwrap();
        let (second, third) = tokio::join!(
            async {
                time::sleep(TURN / 2).await;
                drop(first);
                turn(&turns).await.is_some()
            },
            async { turn(&turns).await.is_some() },
        );
        assert!(second && third);
        let _held = turn(&turns).await;
        assert!(turn(&turns).await.is_none());
    }

    #[test]
    fn answers_are_remembered_for_a_time_and_by_path() {
        let mut remembered = Remembered::default();
        let forbidden = Review::Forbidden("reader".into());
        remembered.put("a", "/metrics", &Review::Allowed, at(0));
        remembered.put("a", "/locks", &forbidden, at(0));
        remembered.put("b", "/metrics", &Review::Unavailable, at(0));
        assert_eq!(remembered.get("a", "/metrics", at(59)), Some(Review::Allowed));
        assert_eq!(remembered.get("a", "/metrics", at(60)), None);
        assert_eq!(remembered.get("a", "/locks", at(4)), Some(forbidden));
        assert_eq!(remembered.get("a", "/locks", at(5)), None);
        assert_eq!(remembered.get("b", "/metrics", at(0)), None, "asked again");
    }

    #[test]
    fn an_expired_answer_is_removed_with_the_next_one() {
        let mut remembered = Remembered::default();
        for number in 0..100 {
            remembered.put(&number.to_string(), "/metrics", &Review::Unauthenticated, at(0));
        }
        assert_eq!(remembered.0.len(), 100);
        remembered.put("good", "/metrics", &Review::Allowed, at(5));
        assert_eq!(remembered.0.len(), 1);
        assert_eq!(remembered.get("good", "/metrics", at(5)), Some(Review::Allowed));
    }

    #[test]
    fn tokens_are_remembered_by_their_sha_256() {
        let hex: String = hashed("abc").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn invented_tokens_do_not_displace_allowed_ones() {
        let mut remembered = Remembered::default();
        remembered.put("good", "/metrics", &Review::Allowed, at(0));
        for number in 0..10_000 {
            remembered.put(&number.to_string(), "/metrics", &Review::Unauthenticated, at(1));
        }
        assert!(remembered.0.len() <= KEPT);
        assert_eq!(remembered.get("good", "/metrics", at(2)), Some(Review::Allowed));
    }
}
