use std::sync::{Arc, Mutex};

use axum::{Router, extract::RawQuery, response::IntoResponse, routing::get};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;

use super::*;
use crate::targets::fake_server::fake_server;

/// The first object and the limit of each request.
type Asked = Arc<Mutex<Vec<(usize, usize)>>>;

fn parameter(query: &str, name: &str) -> Option<usize> {
    let mut all = query.split('&').filter_map(|pair| pair.split_once('='));
    all.find(|(key, _)| *key == name)
        .map(|(_, value)| value.parse().unwrap())
}

/// Returns a client of an API server whose list has objects of these lengths, and the requests that it gets.
async fn server(lengths: Vec<usize>) -> (Client, Asked) {
    let asked = Asked::default();
    let record = asked.clone();
    let answer = move |RawQuery(query): RawQuery| async move {
        let query = query.unwrap_or_default();
        let first = parameter(&query, "continue").unwrap_or(0);
        let limit = parameter(&query, "limit").unwrap();
        record.lock().unwrap().push((first, limit));
        let end = lengths.len().min(first + limit);
        let items: Vec<String> = (first..end)
            .map(|index| {
                let note = "x".repeat(lengths[index]);
                format!(r#"{{"metadata":{{"name":"o{index}"}},"data":{{"note":"{note}"}}}}"#)
            })
            .collect();
        let next = if end < lengths.len() {
            end.to_string()
        } else {
            String::new()
        };
        let items = items.join(",");
        format!(r#"{{"metadata":{{"resourceVersion":"7","continue":"{next}"}},"items":[{items}]}}"#)
            .into_response()
    };
    let client = fake_server(Router::new().route("/api/v1/configmaps", get(answer))).await;
    (client, asked)
}

async fn names(client: Client) -> kube::Result<(Vec<String>, Option<String>)> {
    let api = Api::<ConfigMap>::all(client);
    all_at(&api, ListParams::default(), |object| object.metadata.name).await
}

#[tokio::test]
async fn pages_are_as_large_as_their_objects_allow() {
    // Small objects come first, so that the first page of the large ones is far too long.
    let lengths: Vec<usize> = [vec![100; 400], vec![1_400_000; 9], vec![100; 5]].concat();
    let (client, asked) = server(lengths.clone()).await;
    let (names, version) = names(client).await.unwrap();
    let wanted: Vec<String> = (0..lengths.len()).map(|index| format!("o{index}")).collect();
    assert_eq!((names, version), (wanted, Some("7".to_owned())));
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[..4], [(0, 16), (16, 64), (80, 256), (336, 500)]);
    // The page that is too long is requested again, from the same object.
    assert!(asked[4..].iter().all(|(_, limit)| *limit < 500), "{asked:?}");
    for (first, limit) in &asked[4..] {
        let end = lengths.len().min(first + limit);
        let bytes: usize = lengths[*first..end].iter().sum();
        let again = asked.iter().filter(|(other, _)| other == first).count() > 1;
        assert!(bytes < 2 << 20 || again, "{asked:?}");
    }
}

#[tokio::test]
async fn object_that_is_longer_than_any_is_not_read() {
    let (client, asked) = server(vec![17 << 20, 100]).await;
    let error = names(client).await.unwrap_err();
    assert!(error.to_string().contains("more than 16777216 bytes"), "{error}");
    let limits: Vec<usize> = asked.lock().unwrap().iter().map(|(_, limit)| *limit).collect();
    assert_eq!(limits, [16, 4, 1]);
}
