//! Observes the end of the body of a request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection_table::{ConnectionPhase, ConnectionPlace};

/// The body of a request. Its connection begins to answer when the body has been read.
#[derive(Debug)]
pub(super) struct RequestBody {
    incoming: Incoming,
    place: Arc<ConnectionPlace>,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, place: Arc<ConnectionPlace>) -> Self {
        let body = Self { incoming, place };
        body.check_end();
        body
    }

    fn check_end(&self) {
        if self.incoming.is_end_stream() {
            self.place.enter(ConnectionPhase::Answering);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        self.check_end();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
