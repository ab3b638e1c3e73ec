//! Serves unary methods over tonic without generated code: one function maps the path of a call to its
//! answer.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use prost::Message;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

pub(crate) type Answer = http::Response<Body>;

/// The methods behind one socket.
pub(crate) trait Methods: Send + Sync + 'static {
    /// Answers the call; [`unimplemented`] answers every other path.
    fn call(self: Arc<Self>, request: http::Request<Body>) -> impl Future<Output = Answer> + Send;
}

pub(crate) fn unimplemented(path: &str) -> Answer {
    Status::unimplemented(format!("the method {path} is not implemented by the driver")).into_http()
}

/// Decodes the request, calls the handler and encodes its answer.
pub(crate) async fn unary<Q, A, H, F>(request: http::Request<Body>, handler: H) -> Answer
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
    H: FnOnce(Q) -> F + Send,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
    grpc.unary(Handler(Some(handler)), request).await
}

struct Handler<H>(Option<H>);

impl<Q, A, H, F> UnaryService<Q> for Handler<H>
where
    H: FnOnce(Q) -> F,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let Some(handler) = self.0.take() else {
            return Box::pin(async {
                Err(Status::internal("a unary method was called twice by one request"))
            });
        };
        let answer = handler(request.into_inner());
        Box::pin(async { answer.await.map(Response::new) })
    }
}

/// [`Methods`] as the service that tonic calls.
pub(crate) struct Endpoint<M>(Arc<M>);

impl<M> Endpoint<M> {
    pub(crate) fn new(methods: M) -> Self {
        Self(Arc::new(methods))
    }
}

impl<M> Clone for Endpoint<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> fmt::Debug for Endpoint<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Endpoint")
    }
}

impl<M: Methods> Service<http::Request<Body>> for Endpoint<M> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.clone().call(request);
        Box::pin(async { Ok(answer.await) })
    }
}
