//! An API server for unit tests that answers as the test prescribes.

use axum::Router;
use kube::{Client, Config};

/// Returns a client of a server with these routes. The server ends with the runtime of the test.
pub(crate) async fn fake_server(routes: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Client::try_from(Config::new(url.parse().unwrap())).unwrap()
}
