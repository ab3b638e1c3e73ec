//! Bounds the memory of answers whose size depends on the number of locks.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of large answers in memory at once: two Prometheus servers scrape a replica. The metrics of 10,000 locks
/// have 10 MiB.
const LARGE_ANSWERS: usize = 2;

/// The places for large answers; clones share them. [`super::serve_http`] provides it to handlers as an extension.
#[derive(Clone, Debug)]
pub(crate) struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_ANSWERS)))
    }
}

impl LargeAnswers {
    /// Waits for a place. Clients that do not read hold theirs until the time of their answer is over.
    pub(crate) async fn place(self) -> LargeAnswerPlace {
        // The semaphore is never closed; without a place, the answer has no bound but those of its connection.
        LargeAnswerPlace(self.0.acquire_owned().await.ok())
    }
}

/// A place for one large answer.
#[derive(Debug)]
pub(crate) struct LargeAnswerPlace(Option<OwnedSemaphorePermit>);

impl LargeAnswerPlace {
    /// Returns a body that holds the place until the client has taken it.
    pub(crate) fn body(self, text: impl Into<Vec<u8>>) -> Body {
        Body::from(Bytes::from_owner(LargeText {
            text: text.into(),
            _place: self.0,
        }))
    }
}

struct LargeText {
    text: Vec<u8>,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for LargeText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}
