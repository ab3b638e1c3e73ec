//! Connects the client of a replica to a simulated API server.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::stream::BoxStream;
use http::{Request, Response};
use http_body::Frame;
use kube::{Client, Config, client::Body};
use redlock_world::kubernetes::{ApiBody, ApiRequest, ApiServer, Disconnected};
use tower_service::Service;

use crate::controller::clients::Connector;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns a connector to an API server, on which the client has this name.
pub(super) fn connector(server: &ApiServer, caller: &str) -> Connector {
    let (server, caller) = (server.clone(), Arc::<str>::from(caller));
    Arc::new(move |config: Config| {
        let service = ApiService {
            server: server.clone(),
            caller: caller.clone(),
        };
        Ok(Client::new(service, config.default_namespace))
    })
}

#[derive(Clone)]
struct ApiService {
    server: ApiServer,
    caller: Arc<str>,
}

impl Service<Request<Body>> for ApiService {
    type Response = Response<ApiAnswer>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { server, caller } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let request = ApiRequest::from_http(&parts, body.to_vec());
            let answer = server.handle(&caller, request).await?;
            let body = match answer.body {
                ApiBody::Unary(bytes) => ApiAnswer::Unary(Some(bytes)),
                ApiBody::Watch(watch) => ApiAnswer::Watch(Box::pin(watch.into_stream())),
            };
            let response = Response::builder().status(answer.status);
            Ok(response.header("content-type", "application/json").body(body)?)
        })
    }
}

/// The body of an answer.
enum ApiAnswer {
    Unary(Option<bytes::Bytes>),
    Watch(BoxStream<'static, Result<bytes::Bytes, Disconnected>>),
}

impl http_body::Body for ApiAnswer {
    type Data = bytes::Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(match &mut *self {
            Self::Unary(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Watch(chunks) => {
                let chunk = ready!(chunks.as_mut().poll_next(context));
                chunk.map(|chunk| chunk.map(Frame::data).map_err(Into::into))
            }
        })
    }
}
