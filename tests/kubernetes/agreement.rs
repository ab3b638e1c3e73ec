//! Tests that the API server and `validate` agree on random objects whenever both have the same information.

use futures_util::{StreamExt, stream};
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use crate::fixture::ControlPlane;
use crate::judge::judge_beside;
use crate::rules::{field_errors, objects, read};
use crate::table::{Kind, object};

/// Enough objects to test every rule from both sides dozens of times, in a few seconds.
const DRAWN: usize = 600;
/// Number of concurrent requests: the API server limits how many it handles.
const AT_ONCE: usize = 8;

#[tokio::test]
async fn timings_with_known_stop_times_are_judged_alike() {
    // The longest lease and the command timeout of the quorum must not be the reason for a refusal.
    let quorum = fields(&json!({"maxLeaseDurationSeconds": 86400, "commandTimeoutMilliseconds": 10}));
    let mut draw = fastrand::Rng::with_seed(1);
    let drawn: Vec<Map<String, Value>> = (0..DRAWN).map(|_| timings(&mut draw)).collect();
    assert_judged_alike(Kind::LeaderLock, &drawn, &quorum).await;
}

#[tokio::test]
async fn urls_are_judged_alike() {
    let mut draw = fastrand::Rng::with_seed(2);
    let drawn: Vec<Map<String, Value>> = (0..DRAWN)
        .map(|_| {
            fields(&json!({"masters": [
                {"name": "a", "url": url(&mut draw)}, {"name": "b", "url": "redis://b"}, {"name": "c", "url": "redis://c"},
            ]}))
        })
        .collect();
    assert_judged_alike(Kind::RedisQuorum, &drawn, &Map::new()).await;
}

async fn assert_judged_alike(kind: Kind, drawn: &[Map<String, Value>], quorum: &Map<String, Value>) {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("alike").await;
    let api = objects(plane.admin(), kind, &namespace);
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let verdicts = stream::iter(drawn)
        .map(async |spec| {
            let by_server = field_errors(api.create(&tried, &read(object(kind, "x", spec))).await).0;
            (spec, by_server, judge_beside(kind, spec, quorum))
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let accepted = verdicts.iter().filter(|(_, server, _)| server.is_empty()).count();
    assert!(
        accepted > DRAWN / 20 && accepted < DRAWN - DRAWN / 20,
        "{accepted} of {DRAWN} were accepted: draw others"
    );
    let differ: Vec<String> = verdicts
        .iter()
        .filter(|(_, server, pure)| server.is_empty() != pure.is_empty())
        .map(|(spec, server, pure)| format!("{spec:?}\n  server: {server:?}\n  validate: {pure:?}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

fn timings(draw: &mut fastrand::Rng) -> Map<String, Value> {
    let mut spec = Map::new();
    for (field, longest) in [
        ("leaseDurationSeconds", 70),
        ("renewDeadlineSeconds", 40),
        ("retryPeriodSeconds", 12),
    ] {
        if draw.bool() {
            // Sometimes far outside the range.
            let longest = if draw.u8(..) < 16 { 90_000 } else { longest };
            spec.insert(field.to_owned(), json!(draw.i64(0..=longest)));
        }
    }
    let targets: Vec<Value> = (0..draw.usize(0..3))
        .map(|n| {
            let longest = if draw.u8(..) < 16 { 86_400 } else { 50 };
            json!({
                "name": format!("t{n}"), "action": "Suspend", "stopSeconds": draw.i64(0..=longest),
                "ref": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
            })
        })
        .collect();
    spec.insert("targets".to_owned(), json!(targets));
    spec
}

fn url(draw: &mut fastrand::Rng) -> String {
    // Usually, one of the four parts is wrong.
    let mut one_of = |right: &[&str], wrong: &[&str]| {
        let texts = if draw.u8(..) < 40 { wrong } else { right };
        draw.choice(texts).copied().unwrap_or_default().to_owned()
    };
    let scheme = one_of(
        &["redis://", "rediss://", "RedisS://"],
        &[
            "redis:",
            "redis:/",
            "redis:///",
            "redisss://",
            "http://",
            "//",
            "",
        ],
    );
    let host = one_of(
        &[
            "h",
            "H-1.example.",
            "a_b",
            "10.0.0.1",
            "999.1",
            "[::1]",
            "[2001:DB8::a:1]",
            "-",
            ".",
            "..",
            "xn--a",
        ],
        &[
            "[::ffff:1.2.3.4]",
            "[::1%eth0]",
            "[::1::]",
            "[]",
            "[h]",
            "",
            "%68",
            "h\u{e4}",
            "h h",
            "u@h",
            ":p@h",
            "h\\",
            "][",
        ],
    );
    let port = one_of(
        &["", ":1", ":6379", ":65535"],
        &[":65536", ":0", ":", ":007", ":+1", ":1:2", ":x", "::1"],
    );
    let rest = one_of(
        &["", "/", "/0", "/15", "/007", "/999999999"],
        &[
            "/9999999999",
            "/x",
            "/1/",
            "//1",
            "?",
            "?a=b",
            "#f",
            "/1?a",
            " ",
            "\n",
            "\t",
            "/+1",
            "/-1",
        ],
    );
    format!("{scheme}{host}{port}{rest}")
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}
