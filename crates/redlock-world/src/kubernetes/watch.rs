//! Watches: each reads the recent changes of its resource at its own pace.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    encode,
    error::ApiError,
    events::{ObjectEvent, bookmark, deleted},
    handle::Disconnected,
    registry::ResourceKind,
    selector::Selector,
    server::lock,
    state::{OpenWatch, State},
};

/// The interval between two bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The last bookmark is sent this long before the end of a watch.
const BEFORE_END: Duration = Duration::from_secs(2);
/// The longest duration of a watch without `timeoutSeconds`.
const LONGEST: Duration = Duration::from_secs(1_800);
/// The time after which a waiting watch checks its state again.
const IDLE: Duration = Duration::from_secs(600);

/// A watch request.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchRequest {
    pub(super) namespace: Option<String>,
    pub(super) selector: Selector,
    pub(super) version: String,
    pub(super) has_bookmarks: bool,
    pub(super) sends_initial: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) is_partial: bool,
}

/// How the server ends a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The connection breaks.
    Broken,
    /// The answer ends, as at `timeoutSeconds`.
    Closed,
    /// The last event is the error 410 `Expired`.
    Expired,
    /// The definition of the kind was deleted: the answer ends after the deletion of the last object.
    Removed,
}

impl WatchEnd {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Broken => 1,
            Self::Closed => 2,
            Self::Expired => 3,
            Self::Removed => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Broken),
            2 => Some(Self::Closed),
            3 => Some(Self::Expired),
            4 => Some(Self::Removed),
            _ => None,
        }
    }
}

/// An open watch. Each chunk is one event as a line of JSON.
#[derive(Debug)]
pub struct WatchStream {
    state: Arc<Mutex<State>>,
    number: u64,
    caller: String,
    kind: Arc<ResourceKind>,
    request: WatchRequest,
    /// The revision up to which all changes were delivered.
    cursor: u64,
    first: VecDeque<Bytes>,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// The time at which a delayed change is delivered.
    due: Option<(u64, Instant)>,
    last_due: Instant,
    ended: Arc<AtomicU8>,
    breaks: u64,
    changed: Arc<Notify>,
    faults_changed: Arc<Notify>,
    is_over: bool,
}

enum Step {
    Emit(Bytes),
    End,
    Broken,
    Wait(Instant),
}

impl WatchStream {
    pub(super) fn open(
        server: &Arc<Mutex<State>>,
        state: &mut State,
        caller: &str,
        kind: &Arc<ResourceKind>,
        request: WatchRequest,
    ) -> Result<Self, ApiError> {
        let (cursor, first) = begin(state, kind, &request)?;
        let now = Instant::now();
        let deadline = now + request.timeout.unwrap_or(LONGEST).min(LONGEST);
        state.next_watch += 1;
        let ended = Arc::<AtomicU8>::default();
        let open = OpenWatch {
            caller: caller.to_owned(),
            resource: kind.id.clone(),
            ended: ended.clone(),
        };
        state.watches.insert(state.next_watch, open);
        let is_over = first
            .front()
            .is_some_and(|line| line.starts_with(b"{\"type\":\"ERROR\""));
        Ok(Self {
            state: server.clone(),
            number: state.next_watch,
            caller: caller.to_owned(),
            kind: kind.clone(),
            next_bookmark: request
                .has_bookmarks
                .then(|| next_bookmark(now, deadline))
                .flatten(),
            request,
            cursor,
            first,
            deadline,
            due: None,
            last_due: now,
            ended,
            breaks: state.faults.breaks(caller),
            changed: state.log(&kind.id).changed.clone(),
            faults_changed: state.faults_changed.clone(),
            is_over,
        })
    }

    /// Returns the next chunk; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, Disconnected>> {
        loop {
            // Created before the state is read, so that no change is missed.
            let (changed, faults) = (
                self.changed.clone().notified_owned(),
                self.faults_changed.clone().notified_owned(),
            );
            match self.step() {
                Step::Emit(line) => return Some(Ok(line)),
                Step::End => return None,
                Step::Broken => return Some(Err(Disconnected)),
                Step::Wait(until) => tokio::select! {
                    () = changed => {}
                    () = faults => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Returns the chunks as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Disconnected>> + Send {
        stream::unfold(self, |mut watch| async { Some((watch.next().await?, watch)) })
    }

    fn step(&mut self) -> Step {
        let server = self.state.clone();
        let state = &mut *lock(&server);
        let now = Instant::now();
        if self.is_over && self.first.is_empty() {
            return Step::End;
        }
        if state.faults.breaks(&self.caller) != self.breaks {
            self.end();
            return Step::Broken;
        }
        let end = WatchEnd::from_code(self.ended.load(Relaxed));
        let last = match end {
            None | Some(WatchEnd::Removed) => None,
            Some(WatchEnd::Broken) => Some(Step::Broken),
            Some(WatchEnd::Closed) => Some(Step::End),
            Some(WatchEnd::Expired) => Some(Step::Emit(expired(self.cursor, state.revision))),
        };
        if let Some(last) = last {
            self.end();
            return last;
        }
        if state.faults.of(&self.caller).partition.stops_answers() {
            return Step::Wait(now + IDLE);
        }
        if let Some(line) = self.first.pop_front() {
            return Step::Emit(line);
        }
        if now >= self.deadline {
            self.end();
            return Step::End;
        }
        let step = self.change(state, now);
        let log = state.logs.get(&self.kind.id);
        let is_pending = log.is_some_and(|log| log.after(self.cursor).is_some());
        if end == Some(WatchEnd::Removed) && matches!(step, Step::Wait(_)) && !is_pending {
            self.end();
            return Step::End;
        }
        step
    }

    fn end(&mut self) {
        self.is_over = true;
        self.first.clear();
    }

    /// Delivers the next change, a bookmark, or waits for one of them.
    fn change(&mut self, state: &mut State, now: Instant) -> Step {
        let dropped = state.logs.get(&self.kind.id).map_or(0, |log| log.dropped);
        if dropped > self.cursor {
            self.end();
            return Step::Emit(expired(self.cursor, dropped));
        }
        while let Some(event) = state
            .logs
            .get(&self.kind.id)
            .and_then(|log| log.after(self.cursor))
        {
            let Some(kind) = self.kind_of(event) else {
                self.cursor = event.revision;
                continue;
            };
            let event = event.clone();
            let due = self.due(state, &event);
            if now < due {
                return Step::Wait(due.min(self.deadline));
            }
            (self.cursor, self.last_due) = (event.revision, due);
            return Step::Emit(match (kind, &event.before, &event.after) {
                // An object that is no longer selected is delivered as it was when it was.
                ("DELETED", Some(before), Some(_)) => {
                    let object = deleted(before, event.revision);
                    let object = if self.request.is_partial {
                        encode::partial(&object)
                    } else {
                        object
                    };
                    line(kind, &encode::bytes(&object))
                }
                _ => line(kind, event.encoded(self.request.is_partial)),
            });
        }
        if let Some(at) = self.next_bookmark.filter(|at| now >= *at) {
            self.next_bookmark = next_bookmark(now.max(at), self.deadline);
            if state.revision >= self.cursor {
                self.cursor = state.revision;
                return Step::Emit(text(&bookmark(&self.kind, state.revision, false)));
            }
        }
        let bookmark = self.next_bookmark.unwrap_or(self.deadline);
        Step::Wait(bookmark.min(self.deadline))
    }

    fn due(&mut self, state: &mut State, event: &ObjectEvent) -> Instant {
        if let Some((_, due)) = self.due.filter(|(revision, _)| *revision == event.revision) {
            return due;
        }
        let delay = state.faults.of(&self.caller).watch_delay(&self.kind.id.plural);
        let due = (event.at + delay.draw(&mut state.rng)).max(self.last_due);
        self.due = Some((event.revision, due));
        due
    }

    /// Returns the type of an event for this watch; `None` if the watch does not select the object.
    fn kind_of(&self, event: &ObjectEvent) -> Option<&'static str> {
        let namespace = self.request.namespace.as_deref();
        if namespace.is_some_and(|namespace| namespace != event.key.namespace) {
            return None;
        }
        let selects = |object: &Option<Arc<serde_json::Value>>| {
            object
                .as_ref()
                .is_some_and(|object| self.request.selector.matches(object))
        };
        match (selects(&event.before), selects(&event.after)) {
            (false, false) => None,
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        lock(&self.state).watches.remove(&self.number);
    }
}

/// Returns the revision from which changes follow, and the first lines.
fn begin(
    state: &State,
    kind: &ResourceKind,
    request: &WatchRequest,
) -> Result<(u64, VecDeque<Bytes>), ApiError> {
    let starts_now = matches!(request.version.as_str(), "" | "0");
    if !starts_now && !request.sends_initial {
        let version = request.version.parse::<u64>();
        let version = version.map_err(|_| ApiError::new(500, "", "resourceVersion: Invalid value"))?;
        let oldest = state.oldest(kind);
        let first = (version < oldest).then(|| expired(version, oldest));
        return Ok((version, first.into_iter().collect()));
    }
    let namespace = request.namespace.as_deref();
    let objects = state.objects.get(&kind.id).into_iter().flatten();
    let mut first: VecDeque<Bytes> = objects
        .filter(|(place, object)| {
            namespace.is_none_or(|namespace| place.0 == namespace) && request.selector.matches(object)
        })
        .map(|(_, object)| {
            let encoded = if request.is_partial {
                encode::bytes(&encode::partial(object))
            } else {
                encode::bytes(object)
            };
            line("ADDED", &encoded)
        })
        .collect();
    if request.sends_initial {
        first.push_back(text(&bookmark(kind, state.revision, true)));
    }
    Ok((state.revision, first))
}

fn next_bookmark(now: Instant, deadline: Instant) -> Option<Instant> {
    let regular = now + BOOKMARKS;
    let last = deadline.checked_sub(BEFORE_END)?;
    if regular < last {
        return Some(regular);
    }
    (last > now).then_some(last)
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

fn text(event: &serde_json::Value) -> Bytes {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

fn expired(wanted: u64, oldest: u64) -> Bytes {
    let error = ApiError::expired(format!("too old resource version: {wanted} ({oldest})"));
    let object = json!(error.status());
    line("ERROR", &encode::bytes(&object))
}
