//! The servers that conversations are played on.

use std::{future::Future, pin::Pin};

use bytes::Bytes;
use futures_util::Stream;

use crate::kubernetes::ApiRequest;

/// The caller of all requests, and so the field manager of those that name none.
pub const CALLER: &str = "conversation";

/// An API server as a client sees it.
pub trait ConversationServer {
    fn send(&self, request: ApiRequest) -> impl Future<Output = ServerAnswer>;
}

/// The answer to a request.
pub struct ServerAnswer {
    pub status: u16,
    pub body: AnswerBody,
}

/// A body as it arrives.
pub type AnswerBody = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl std::fmt::Debug for ServerAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerAnswer")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
