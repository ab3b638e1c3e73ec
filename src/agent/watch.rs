//! `/v1/watch`: an event at each change, for as long as the client reads.
//!
//! No event is kept for a slow reader: it gets the current state when it reads again, and not the changes that it
//! missed.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::Event;
use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    answer::{Answer, Difference},
    post::{Phase, Post},
};
use crate::{clock, elector::LockView, lease::BootInstant};

/// The interval of checks for changes that cause no event, such as a change of the majority.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

struct Reader {
    post: Arc<Post>,
    phase: watch::Receiver<Phase>,
    view: Option<watch::Receiver<LockView>>,
    sent: Option<Answer>,
    /// One of the places for readers, held until the reader is dropped.
    _place: OwnedSemaphorePermit,
}

/// Returns the events. The first one is sent at once; the last one reports that no lock is held any longer.
pub(super) fn events(
    post: Arc<Post>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let reader = Reader {
        phase: post.phase(),
        post,
        view: None,
        sent: None,
        _place: place,
    };
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    })
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            // The phase is marked as seen before the answer is computed, so that no change is missed in
            // between.
            let phase = *self.phase.borrow_and_update();
            if self.view.is_none() {
                self.view = self.post.view();
            }
            let until = self.view.as_mut().and_then(|view| {
                let authority = view.borrow_and_update().authority_at(clock::now());
                authority.map(|authority| authority.valid_until - self.post.stop_grace)
            });
            let now = clock::now();
            let answer = Answer::at(&self.post, now);
            let difference = self.sent.as_ref().map(|sent| answer.differs(sent));
            let name = match difference {
                None | Some(Difference::Changed) => "changed",
                Some(Difference::Renewed) => "renewed",
                Some(Difference::Nothing) if phase == Phase::Stopping => return None,
                Some(Difference::Nothing) => {
                    self.wait(until, now).await;
                    continue;
                }
            };
            let event = Event::default().event(name).json_data(&answer);
            self.sent = Some(answer);
            // An event that cannot be serialized is not sent: the reader sees the end of the stream.
            return event.ok();
        }
    }

    /// Waits for a possible change: until `until`, the end of the activity of this process, and
    /// [`POLL_INTERVAL`] at most.
    async fn wait(&mut self, until: Option<BootInstant>, now: BootInstant) {
        let next_poll = now + POLL_INTERVAL;
        let until = until
            .filter(|until| *until > now)
            .map_or(next_poll, |until| until.min(next_poll));
        let view = &mut self.view;
        let changed = async {
            match view {
                Some(view) => view.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let stands = tokio::select! {
            stands = changed => stands,
            _ = self.phase.changed() => true,
            () = clock::sleep_until(until) => true,
        };
        if !stands {
            self.view = None;
        }
    }
}
