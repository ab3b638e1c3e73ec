//! Latency, partitions, refusals, delayed watches and admission rules.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::support::*;
use crate::kubernetes::{
    AdmissionRefusal, Disconnected, Heal, LatencyRange, Partition, Refusal, ResourceId, Verb, WatchEnd,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn request_takes_the_latency_of_its_caller() {
    let server = server();
    server.change_faults("r1", |faults| faults.latency = LatencyRange::fixed(SECOND));
    let began = Instant::now();
    read(&server, MAPS).await;
    assert_eq!(began.elapsed(), SECOND);
    let other = request(Method::GET, MAPS, "", &Value::Null);
    server.handle("r2", other).await.unwrap();
    assert_eq!(began.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn partition_holds_requests_until_it_heals() {
    let server = server();
    for (heal, succeeds) in [(Heal::Resume, true), (Heal::Break, false)] {
        server.partition("r1", Partition::Both);
        let get = request(Method::GET, MAPS, "", &Value::Null);
        let mut waiting = std::pin::pin!(server.handle("r1", get));
        assert!(timeout(60 * SECOND, &mut waiting).await.is_err());
        server.heal("r1", heal);
        assert_eq!(waiting.await.is_ok(), succeeds);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answer_belongs_to_an_executed_request() {
    let server = server();
    server.partition("r1", Partition::Answers);
    let post = request(Method::POST, MAPS, "application/json", &config_map("a"));
    assert!(timeout(SECOND, server.handle("r1", post)).await.is_err());
    assert!(server.read(&key(ResourceId::CONFIG_MAPS, "a")).is_some());
    server.heal("r1", Heal::Break);
    server.change_faults("r1", |faults| faults.lost_answers = 1.0);
    let post = request(Method::POST, MAPS, "application/json", &config_map("b"));
    assert_eq!(server.handle("r1", post).await.unwrap_err(), Disconnected);
    assert!(server.read(&key(ResourceId::CONFIG_MAPS, "b")).is_some());
    server.change_faults("r1", |faults| {
        (faults.lost_answers, faults.lost_requests) = (0.0, 1.0)
    });
    let post = request(Method::POST, MAPS, "application/json", &config_map("c"));
    assert_eq!(server.handle("r1", post).await.unwrap_err(), Disconnected);
    assert!(server.read(&key(ResourceId::CONFIG_MAPS, "c")).is_none());
}

#[tokio::test(start_paused = true)]
async fn partition_holds_watches_which_resume_or_break() {
    for (heal, expected) in [(Heal::Resume, "ADDED a"), (Heal::Break, "broken")] {
        let server = server();
        let mut maps = watch(&server, "r1", &format!("{MAPS}?watch=true&resourceVersion=0")).await;
        server.partition("r1", Partition::Both);
        server
            .create("u", &ResourceId::CONFIG_MAPS, config_map("a"))
            .unwrap();
        assert!(timeout(60 * SECOND, event_text(&mut maps)).await.is_err());
        server.heal("r1", heal);
        assert_eq!(event_text(&mut maps).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_watch_is_late_and_keeps_its_order() {
    let server = server();
    let delay = LatencyRange {
        min: SECOND,
        max: 9 * SECOND,
    };
    server.change_faults("r1", |faults| {
        faults.watch_delays = [("configmaps".to_owned(), delay)].into()
    });
    let path = format!("{MAPS}?watch=true&resourceVersion=0");
    let (mut late, mut direct) = (
        watch(&server, "r1", &path).await,
        watch(&server, "r2", &path).await,
    );
    let began = Instant::now();
    for number in 0..20 {
        server
            .create(
                "u",
                &ResourceId::CONFIG_MAPS,
                config_map(&format!("m{number:02}")),
            )
            .unwrap();
    }
    assert_eq!(event_text(&mut direct).await, "ADDED m00");
    assert_eq!(began.elapsed(), Duration::ZERO);
    for number in 0..20 {
        assert_eq!(event_text(&mut late).await, format!("ADDED m{number:02}"));
    }
    assert!(began.elapsed() > SECOND && began.elapsed() <= 9 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused_with_the_code_of_the_fault() {
    let server = server();
    let refuse = |code, is_executed| {
        server.change_faults("r1", |faults| {
            faults.refusals = vec![Refusal {
                code,
                probability: 1.0,
                only_writes: true,
                is_executed,
            }];
        });
    };
    refuse(429, false);
    assert_eq!(read(&server, MAPS).await.0, 200);
    let (code, status) = send(&server, Method::POST, MAPS, "application/json", config_map("a")).await;
    assert_eq!((code, &status["reason"]), (429, &json!("TooManyRequests")));
    assert!(server.read(&key(ResourceId::CONFIG_MAPS, "a")).is_none());
    refuse(500, true);
    let (code, status) = send(&server, Method::POST, MAPS, "application/json", config_map("a")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert!(
        server.read(&key(ResourceId::CONFIG_MAPS, "a")).is_some(),
        "the outcome is unknown to the caller"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_refuses_requests_until_it_is_removed() {
    let server = server();
    let number = server.add_rule(Arc::new(|request| {
        let refused = request.caller.starts_with('r')
            && request.verb == Verb::Create
            && request.key.resource == ResourceId::CONFIG_MAPS
            && request.after.is_some_and(|after| after["data"]["a"] == "1");
        refused.then(|| AdmissionRefusal::forbidden("denied by policy"))
    }));
    let (code, status) = send(&server, Method::POST, MAPS, "application/json", config_map("a")).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("is forbidden: denied by policy")
    );
    assert!(
        server
            .create("u", &ResourceId::CONFIG_MAPS, config_map("b"))
            .is_ok()
    );
    server.remove_rule(number);
    assert!(
        server
            .create("r1", &ResourceId::CONFIG_MAPS, config_map("a"))
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn watches_end_on_demand() {
    let server = server();
    let path = format!("{MAPS}?watch=true&resourceVersion=0");
    let mut other = watch(&server, "r2", &path).await;
    for (how, events) in [
        (WatchEnd::Broken, ["broken", "end"]),
        (WatchEnd::Closed, ["end", "end"]),
        (WatchEnd::Expired, ["ERROR 410", "end"]),
    ] {
        let mut one = watch(&server, "r1", &path).await;
        server.end_watches(how, Some("r1"), Some(&ResourceId::CONFIG_MAPS));
        assert_eq!([event_text(&mut one).await, event_text(&mut one).await], events);
    }
    server
        .create("u", &ResourceId::CONFIG_MAPS, config_map("a"))
        .unwrap();
    assert_eq!(event_text(&mut other).await, "ADDED a");
    server.break_connections("r2");
    assert_eq!(event_text(&mut other).await, "broken");
}

#[tokio::test(start_paused = true)]
async fn mutation_changes_objects_before_they_are_stored() {
    let server = server();
    server.add_mutation(Arc::new(|request, object| {
        if request.verb == Verb::Create && request.key.resource == ResourceId::DEPLOYMENTS {
            object["spec"]["replicas"] = 0.into();
            object["metadata"]["annotations"]["redlock.dev/created-on-standby"] = "true".into();
        }
    }));
    let made = server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    assert_eq!(made["spec"]["replicas"], 0);
    assert_eq!(
        made["metadata"]["annotations"]["redlock.dev/created-on-standby"],
        "true"
    );
}
