//! Plays a conversation on a server, and collects its answers in the form of the record.

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::{
    Conversation, ConversationStep, StepAction, StepRequest,
    differences::equal_answers,
    names::{PlaceholderNames, order_of},
    server::{AnswerBody, ConversationServer, ServerAnswer},
    versions::rank_versions,
};
use crate::kubernetes::ApiRequest;

/// The longest time that a step waits for its answer.
const BOUND: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// The time for which an answer must stay the recorded one.
const HOLD: Duration = Duration::from_millis(500);
/// The time after which an answer that does not change is recorded.
const QUIET: Duration = Duration::from_secs(3);

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayMode {
    /// The answers are compared with the record.
    Compare,
    /// The answers become the record.
    Record,
}

/// Plays one conversation.
#[derive(Debug)]
pub struct ConversationPlayer<'a, S> {
    server: &'a S,
    mode: PlayMode,
    names: PlaceholderNames,
    saved: BTreeMap<String, Value>,
    watches: BTreeMap<String, EventReader>,
}

impl<'a, S: ConversationServer> ConversationPlayer<'a, S> {
    pub fn new(server: &'a S, mode: PlayMode) -> Self {
        Self {
            server,
            mode,
            names: PlaceholderNames::default(),
            saved: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Returns the answer to each step, with placeholders.
    pub async fn play(mut self, conversation: &Conversation) -> Vec<Value> {
        let mut answers = Vec::new();
        for step in &conversation.steps {
            answers.push(self.step(step).await);
        }
        rank_versions(&mut answers);
        answers
    }

    async fn step(&mut self, step: &ConversationStep) -> Value {
        match &step.action {
            StepAction::Send(request) => {
                let mut answer = self.exchange(request).await;
                self.names.replace(&mut answer);
                answer
            }
            StepAction::Settle(request) => self.settle(request, &step.answer).await,
            StepAction::Watch { name, path, query } => self.open(name, path, query).await,
            StepAction::Events { watch, count } => {
                let reader = self
                    .watches
                    .get_mut(watch)
                    .unwrap_or_else(|| panic!("no watch {watch} is open"));
                let mut events = reader.read(*count).await;
                self.names.replace(&mut events);
                events
            }
        }
    }

    async fn exchange(&mut self, request: &StepRequest) -> Value {
        let answer = self.server.send(self.request_of(request)).await;
        let status = answer.status;
        let mut body = whole(answer).await;
        if !request.save.is_empty() {
            self.saved.insert(request.save.clone(), body.clone());
        }
        if let Some(fields) = request.fields.as_ref().filter(|_| status < 300) {
            body = project(&body, fields);
        }
        json!({"status": status, "body": body})
    }

    /// Repeats a read until its answer is settled; returns the last one if it does not settle in time.
    async fn settle(&mut self, request: &StepRequest, recorded: &Value) -> Value {
        let started = Instant::now();
        let (mut since, mut last) = (Instant::now(), Value::Null);
        loop {
            let mut answer = self.exchange(request).await;
            let mut names = self.names.clone();
            names.replace(&mut answer);
            if answer != last {
                (since, last) = (Instant::now(), answer.clone());
            }
            let is_settled = match self.mode {
                PlayMode::Compare => equal_answers(recorded, &answer) && since.elapsed() >= HOLD,
                PlayMode::Record => since.elapsed() >= QUIET,
            };
            if is_settled || started.elapsed() > BOUND {
                self.names = names;
                return answer;
            }
            time::sleep(PAUSE).await;
        }
    }

    async fn open(&mut self, name: &str, path: &str, query: &str) -> Value {
        let request = StepRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: format!("watch=true&{query}"),
            patch: String::new(),
            metadata_only: false,
            body: Value::Null,
            save: String::new(),
            fields: None,
        };
        let answer = self.server.send(self.request_of(&request)).await;
        let status = answer.status;
        if status != 200 {
            let mut answer = json!({"status": status, "body": whole(answer).await});
            self.names.replace(&mut answer);
            return answer;
        }
        self.watches
            .insert(name.to_owned(), EventReader::new(answer.body));
        json!({ "status": status })
    }

    fn request_of(&self, step: &StepRequest) -> ApiRequest {
        let mut body = step.body.clone();
        self.resolve(&mut body);
        let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        ApiRequest {
            method: Method::from_bytes(step.method.as_bytes()).unwrap(),
            path: self.text(&step.path, &|text| text.to_owned()),
            query: self.text(&step.query, &encode),
            content_type: match &*step.patch {
                "" => "application/json",
                "merge" => "application/merge-patch+json",
                "json" => "application/json-patch+json",
                "strategic" => "application/strategic-merge-patch+json",
                "apply" => "application/apply-patch+yaml",
                other => panic!("no patch is called {other}"),
            }
            .to_owned(),
            accept: match step.metadata_only {
                true if step
                    .path
                    .rsplit('/')
                    .next()
                    .is_some_and(|last| last.ends_with('s')) =>
                {
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                }
                true => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                false => "application/json",
            }
            .to_owned(),
            body: if body.is_null() {
                Vec::new()
            } else {
                serde_json::to_vec(&body).unwrap()
            },
        }
    }

    /// Replaces the references to saved answers.
    fn resolve(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(|value| self.resolve(value)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.resolve(item)),
            Value::String(text) => *text = self.text(text, &|text| text.to_owned()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &str, encode: &dyn Fn(&str) -> String) -> String {
        let mut text = text.to_owned();
        for (name, saved) in &self.saved {
            while let Some(start) = text.find(&format!("{{{name}/")) {
                let end = start
                    + text[start..]
                        .find('}')
                        .unwrap_or_else(|| panic!("{text} has no end"));
                let pointer = &text[start + 1 + name.len()..end];
                let found = saved.pointer(pointer).and_then(Value::as_str);
                let found = found.unwrap_or_else(|| panic!("{name} has no text at {pointer}: {saved}"));
                text.replace_range(start..=end, &encode(found));
            }
        }
        text
    }
}

async fn whole(answer: ServerAnswer) -> Value {
    let chunks: Vec<_> = answer.body.collect().await;
    let bytes = chunks.concat();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into())
}

/// Returns these fields of an object, or of each item of a list. The items have an order without generated names.
fn project(body: &Value, fields: &[String]) -> Value {
    if let Some(items) = body["items"].as_array() {
        let mut items: Vec<Value> = items.iter().map(|item| project(item, fields)).collect();
        items.sort_by_cached_key(order_of);
        return json!({ "items": items });
    }
    let mut kept = json!({});
    for pointer in fields {
        if let Some(value) = body.pointer(pointer) {
            let place = pointer
                .split('/')
                .skip(1)
                .fold(&mut kept, |place, part| &mut place[part]);
            *place = value.clone();
        }
    }
    kept
}

/// Splits the body of a watch into events.
struct EventReader {
    body: AnswerBody,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for EventReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventReader").finish_non_exhaustive()
    }
}

impl EventReader {
    fn new(body: AnswerBody) -> Self {
        Self {
            body,
            buffer: Vec::new(),
        }
    }

    /// Returns this number of events, or all until the end. Fewer if they do not arrive in time.
    async fn read(&mut self, count: Option<usize>) -> Value {
        let mut events = Vec::new();
        let all = async {
            while count.is_none_or(|count| events.len() < count)
                && let Some(event) = self.next().await
            {
                events.push(event);
            }
        };
        let in_time = time::timeout(BOUND, all).await.is_ok();
        if !in_time {
            events.push("no further event arrived".into());
        }
        events.into()
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.buffer.extend_from_slice(&self.body.next().await?);
        }
    }
}
