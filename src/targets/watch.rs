//! A watch that survives failures of the API server, and a restore of its database.

use std::{fmt::Debug, time::Duration};

use futures_util::{Stream, StreamExt, stream, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::time;

use super::Pause;

struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    pause: Pause,
    /// Before the next request.
    wait: Option<Duration>,
    starts_anew: bool,
}

/// The events of a watch, with a back-off after each error. Never ends.
///
/// A watch that could not be started again begins with a list. The API server was away for longer than a connection; if
/// etcd was restored from a backup meanwhile, the last resourceVersion may be one that does not come for hours, and a
/// watch from there would show nothing until then.
pub(crate) fn watch_events<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watch = Watch {
        events: watcher::watcher(api.clone(), config.clone()).boxed(),
        api,
        config,
        pause: Pause::default(),
        wait: None,
        starts_anew: false,
    };
    stream::unfold(watch, |mut watch| async {
        if let Some(wait) = watch.wait.take() {
            time::sleep(wait).await;
        }
        if std::mem::take(&mut watch.starts_anew) {
            watch.events = watcher::watcher(watch.api.clone(), watch.config.clone()).boxed();
        }
        let event = watch.events.next().await?;
        match &event {
            // A list that is asked for shows nothing of the server, only what the server answers.
            Ok(Event::Init) => {}
            Ok(_) => watch.pause.reset(),
            Err(error) => {
                watch.wait = watch.pause.next();
                watch.starts_anew = is_refused(error);
            }
        }
        Some((event, watch))
    })
}

/// Whether the API server refused a watch, or could not be asked for one.
const fn is_refused(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(kube::Error::Api(_))
    )
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use axum::{Json, Router, extract::RawQuery, http::StatusCode, response::IntoResponse, routing::get};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, ResourceExt};
    use serde_json::json;

    use super::*;
    use crate::targets::fake_server::fake_server;

    /// An API server with one object in its lists, whose resourceVersion is lower from list to list. A watch cannot be
    /// started.
    async fn restored_server() -> Client {
        let lists = Arc::new(AtomicUsize::new(0));
        let answer = move |RawQuery(query): RawQuery| async move {
            if query.is_some_and(|query| query.contains("watch=")) {
                return (StatusCode::INTERNAL_SERVER_ERROR, "away").into_response();
            }
            let version = (1_000 - lists.fetch_add(1, SeqCst)).to_string();
            Json(json!({
                "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version},
                "items": [{"metadata": {"name": "a", "resourceVersion": version}}],
            }))
            .into_response()
        };
        fake_server(Router::new().route("/api/v1/configmaps", get(answer))).await
    }

    #[tokio::test]
    async fn watch_that_cannot_be_started_again_begins_with_a_list() {
        let api = Api::<ConfigMap>::all(restored_server().await);
        let events = watch_events(api, watcher::Config::default());
        let versions = events.filter_map(|event| async {
            match event {
                Ok(Event::InitApply(object)) => object.resource_version(),
                _ => None,
            }
        });
        let mut versions = pin!(versions);
        let first = versions.next().await;
        let second = time::timeout(Duration::from_secs(5), versions.next()).await;
        assert_eq!(first.as_deref(), Some("1000"));
        assert_eq!(second, Ok(Some("999".to_owned())), "listed again");
    }
}
