//! Provides a client whose connections can all be replaced at once.
//!
//! A connection may turn silent without being closed, for example when a firewall drops its state. Its watch
//! then delivers neither an event nor an error for minutes. Once the connection is given up, the watch ends
//! with an error and resumes on a new connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use arc_swap::ArcSwap;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::{Client, Config, client::Body};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower_service::Service;

use super::Connector;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const GIVEN_UP: &str = "the connection was closed: the API server did not answer for too long";

/// The current connections of one client.
struct Generation {
    client: Client,
    over: CancellationToken,
}

impl Generation {
    fn new(config: &Config, connector: &Connector) -> Result<Self, kube::Error> {
        Ok(Self {
            client: connector(config.clone())?,
            over: CancellationToken::new(),
        })
    }
}

/// Replaces the connections of a client.
#[derive(Clone)]
pub(super) struct Renewal {
    config: Arc<Config>,
    connector: Connector,
    generation: Arc<ArcSwap<Generation>>,
}

impl Renewal {
    /// Ends the requests in flight with an error; later requests use new connections.
    pub(super) fn renew(&self) -> Result<(), kube::Error> {
        let next = Generation::new(&self.config, &self.connector)?;
        let before = self.generation.swap(Arc::new(next));
        before.over.cancel();
        Ok(())
    }
}

/// Returns a client, and the handle that replaces its connections.
pub(super) fn client(config: Config, connector: Connector) -> Result<(Client, Renewal), kube::Error> {
    let renewal = Renewal {
        generation: Arc::new(ArcSwap::from_pointee(Generation::new(&config, &connector)?)),
        config: Arc::new(config),
        connector,
    };
    let service = Through(renewal.generation.clone());
    let client = Client::new(service, renewal.config.default_namespace.clone());
    Ok((client, renewal))
}

/// Sends each request over the generation of connections that is current at that time.
struct Through(Arc<ArcSwap<Generation>>);

impl Service<Request<Body>> for Through {
    type Response = Response<Bounded>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let generation = self.0.load_full();
        Box::pin(async move {
            let over = generation.over.clone();
            let answer = tokio::select! {
                answer = generation.client.send(request) => answer?,
                () = over.cancelled() => return Err(GIVEN_UP.into()),
            };
            Ok(answer.map(|body| Bounded {
                body,
                over: Some(Box::pin(over.cancelled_owned())),
            }))
        })
    }
}

/// A body that ends with the generation of its connection.
struct Bounded {
    body: Body,
    /// `None` after the end.
    over: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl http_body::Body for Bounded {
    type Data = <Body as http_body::Body>::Data;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(over) = &mut self.over else {
            return Poll::Ready(None);
        };
        if over.as_mut().poll(context).is_ready() {
            self.over = None;
            return Poll::Ready(Some(Err(GIVEN_UP.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
