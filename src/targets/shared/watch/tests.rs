use std::time::Duration;

use axum::{Router, extract::RawQuery, http::StatusCode, response::IntoResponse, routing::get};
use k8s_openapi::api::batch::v1::CronJob;
use kube::core::Status;
use serde_json::json;
use tokio::time;

use super::*;
use crate::{
    lease::BootInstant,
    targets::{
        LeaseFence, ObjectKey, Origin, fake_server::fake_server, once_per_schedule::Cron, shared::Shared,
    },
};

fn content() -> Content<Cron> {
    Content::new("following cronjobs".to_owned())
}

/// Returns a follower of the CronJob `report`.
fn follower(content: Content<Cron>) -> Followed<Cron> {
    let task = tokio::spawn(std::future::pending());
    let objects = Objects {
        content: Arc::new(content),
        task,
    };
    Followed::new(Arc::new(objects), "report")
}

fn cron_job(uid: &str) -> CronJob {
    serde_json::from_value(json!({"metadata": {"name": "report", "uid": uid}})).unwrap()
}

fn seen(uid: &str) -> Change<CronJob> {
    Change::Seen(cron_job(uid), Origin::List(BootInstant::default()))
}

fn failed() -> Change<CronJob> {
    let status = Status::failure("away", "InternalError").with_code(500).boxed();
    Change::Failed(watcher::Error::InitialListFailed(kube::Error::Api(status)))
}

/// Reports whether the stream has an item now.
async fn is_notified(changes: &mut (impl Stream<Item = ()> + Unpin)) -> bool {
    time::timeout(Duration::ZERO, changes.next()).await.is_ok()
}

#[tokio::test]
async fn failure_of_a_watch_takes_nothing_away_that_was_listed() {
    let followed = follower(content());
    let content = followed.objects.content.clone();
    let mut changes = Box::pin(followed.changes());
    assert_eq!(followed.shown(), Shown::NotYet);
    content.take(failed());
    assert!(matches!(followed.shown(), Shown::Failed(_)));
    assert!(is_notified(&mut changes).await);
    content.take(failed());
    assert!(!is_notified(&mut changes).await, "the same");
    content.take(seen("a"));
    assert!(is_notified(&mut changes).await);
    content.take(Change::Synced);
    content.take(failed());
    let here = Cron::of(cron_job("a")).map(Shown::Here);
    assert_eq!(Some(followed.shown()), here);
    assert!(
        is_notified(&mut changes).await && !is_notified(&mut changes).await,
        "the list is complete"
    );
    content.take(seen("a"));
    assert!(!is_notified(&mut changes).await, "nothing has changed");
    content.take(seen("b"));
    assert!(is_notified(&mut changes).await, "created again");
    let key = ObjectKey {
        namespace: "n".into(),
        name: "report".into(),
    };
    content.take(Change::Gone(key));
    assert_eq!(followed.shown(), Shown::Missing);
    assert!(is_notified(&mut changes).await);
}

#[tokio::test]
async fn object_that_the_first_list_lacks_is_missing() {
    let followed = follower(content());
    let mut changes = Box::pin(followed.changes());
    followed.objects.content.take(Change::Synced);
    assert_eq!(followed.shown(), Shown::Missing);
    assert!(is_notified(&mut changes).await);
}

/// Many targets of one kind in a namespace have one list and one watch.
#[tokio::test]
async fn targets_of_a_kind_and_namespace_share_one_watch() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let record = asked.clone();
    let answer = move |uri: axum::http::Uri, RawQuery(query): RawQuery| async move {
        let watches = query.is_some_and(|query| query.contains("watch="));
        record.lock().unwrap().push((uri.path().to_owned(), watches));
        if watches {
            return (
                StatusCode::OK,
                axum::body::Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>()),
            )
                .into_response();
        }
        r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#.into_response()
    };
    let client = fake_server(Router::new().route("/{*path}", get(answer))).await;
    let fence = LeaseFence {
        enforced: true,
        release: None,
    };
    let shared = Shared::new(client, fence, std::iter::empty().collect());
    let names: Vec<String> = (0..20).map(|index| format!("it-{index}")).collect();
    let crons: Vec<_> = names.iter().map(|name| shared.cron_job("n", name)).collect();
    let leases: Vec<_> = names.iter().map(|name| shared.lease_holder("n", name)).collect();
    let jobs: Vec<_> = names.iter().map(|name| shared.job("n", name)).collect();
    let pods: Vec<_> = names.iter().map(|_| shared.pods("n")).collect();
    redlock_testkit::eventually(Duration::from_secs(20), "the watches run", async || {
        let all = asked.lock().unwrap().clone();
        if all.iter().filter(|(_, watches)| *watches).count() == 4 {
            Ok(())
        } else {
            Err(all)
        }
    })
    .await;
    assert!(crons.iter().all(|cron| cron.shown() == Shown::Missing));
    let mut all = asked.lock().unwrap().clone();
    all.sort();
    let of = |path: &str| [(path.to_owned(), false), (path.to_owned(), true)];
    let wanted = [
        of("/api/v1/namespaces/n/pods"),
        of("/apis/batch/v1/namespaces/n/cronjobs"),
        of("/apis/batch/v1/namespaces/n/jobs"),
        of("/apis/coordination.k8s.io/v1/namespaces/n/leases"),
    ];
    assert_eq!(all, wanted.concat());
    drop((leases, jobs, pods));
}
