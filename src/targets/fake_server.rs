//! An API server for unit tests that answers as the test prescribes.

use std::{sync::Arc, time::Duration};

use axum::Router;
use kube::{Client, Config};
use tokio::sync::mpsc;

use super::{LeaseFence, Note, Shared, StartPermit, TargetContext};
use crate::{
    clock,
    elector::Elector,
    lease::{ClusterId, FencingToken, Holder, HolderIdentity, LockName, Nonce},
    telemetry::{Origin, Telemetry},
};

/// Returns a client of a server with these routes. The server ends with the runtime of the test.
pub(crate) async fn fake_server(routes: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Client::try_from(Config::new(url.parse().unwrap())).unwrap()
}

/// Returns the context of a target of this server, and its events. `fields` are those that the action Patch may set.
pub(super) fn target_context(
    client: Client,
    fields: &[&str],
) -> (TargetContext, mpsc::UnboundedReceiver<Note>) {
    let cluster = ClusterId::new("here", "c").unwrap();
    let origin = Origin {
        component: "operator",
        identity: HolderIdentity::parse("a").unwrap(),
        cluster: cluster.clone(),
    };
    let (notes, noted) = mpsc::unbounded_channel();
    let allowed = fields.iter().map(|field| field.parse().unwrap()).collect();
    let fence = LeaseFence {
        enforced: true,
        release: None,
    };
    let context = TargetContext {
        fenced: false,
        switches: true,
        shared: Arc::new(Shared::new(client.clone(), fence, allowed)),
        client,
        namespace: "n".into(),
        object: "lock".into(),
        lock: LockName::parse("lock").unwrap(),
        target: "it".into(),
        cluster,
        elector: Elector::detached().0,
        telemetry: Telemetry::new(origin, false).unwrap(),
        notes,
    };
    (context, noted)
}

/// Returns a permit to start that holds for a minute.
pub(super) fn held() -> StartPermit {
    let holder = Holder {
        cluster: ClusterId::new("here", "c").unwrap(),
        identity: "a".into(),
        nonce: Nonce(7),
        token: FencingToken(3),
        ends: clock::now() + Duration::from_secs(60),
    };
    let view = Elector::detached().1;
    view.send_modify(|view| view.holder = Some(holder.clone()));
    StartPermit::observed(view.subscribe(), holder)
}
