//! Lists, page by page.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    error::ApiError,
    registry::ResourceKind,
    selector::Selector,
    state::{Objects, State},
};

/// A list request.
#[derive(Clone, Debug, Default)]
pub(super) struct ListRequest {
    /// All namespaces if absent.
    pub(super) namespace: Option<String>,
    pub(super) selector: Selector,
    pub(super) limit: usize,
    pub(super) continue_token: String,
    /// The revision whose state is wanted; the present one if absent.
    pub(super) exact: Option<u64>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub(super) struct ListPage {
    pub(super) items: Vec<Arc<Value>>,
    pub(super) revision: u64,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
}

impl State {
    pub(super) fn list(&self, kind: &ResourceKind, request: &ListRequest) -> Result<ListPage, ApiError> {
        let (revision, start) = self.position(kind, request)?;
        let past;
        let empty = BTreeMap::new();
        let present = self.objects.get(&kind.id).unwrap_or(&empty);
        let objects = if revision == self.revision {
            present
        } else {
            past = self.at(kind, present, revision);
            &past
        };
        let namespace = request.namespace.as_deref();
        let mut items = Vec::new();
        let mut last = None;
        let mut left = 0;
        for (place, object) in objects {
            let selected = namespace.is_none_or(|namespace| place.0 == namespace)
                && start.as_ref().is_none_or(|start| place > start)
                && request.selector.matches(object);
            if !selected {
                continue;
            }
            if request.limit > 0 && items.len() == request.limit {
                left += 1;
                continue;
            }
            items.push(object.clone());
            last = Some(place);
        }
        let token = last
            .filter(|_| left > 0)
            .map(|(namespace, name)| format!("{revision}|{namespace}|{name}"));
        Ok(ListPage {
            items,
            revision,
            remaining: (left > 0 && request.selector.is_empty()).then_some(left),
            continue_token: token,
        })
    }

    /// Returns the revision and the place at which a page begins.
    fn position(
        &self,
        kind: &ResourceKind,
        request: &ListRequest,
    ) -> Result<(u64, Option<(String, String)>), ApiError> {
        let token = &*request.continue_token;
        if token.is_empty() {
            let revision = request.exact.unwrap_or(self.revision);
            if revision < self.oldest(kind) {
                let why = format!("The resourceVersion for the provided list is too old: {revision}");
                return Err(ApiError::expired(why));
            }
            return Ok((revision, None));
        }
        let mut parts = token.splitn(3, '|');
        let revision = parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(revision), Some(namespace), Some(name)) = (revision, parts.next(), parts.next()) else {
            return Err(ApiError::bad_request("continue key is not valid"));
        };
        if revision < self.oldest(kind) || revision > self.revision {
            return Err(ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result.",
            ));
        }
        Ok((revision, Some((namespace.to_owned(), name.to_owned()))))
    }

    /// Returns the oldest revision from which all changes of a kind are known.
    pub(super) fn oldest(&self, kind: &ResourceKind) -> u64 {
        let dropped = self.logs.get(&kind.id).map_or(0, |log| log.dropped);
        dropped.max(self.compacted)
    }

    /// Returns the objects of a kind as they were at a revision.
    fn at(&self, kind: &ResourceKind, present: &Objects, revision: u64) -> Objects {
        let mut objects = present.clone();
        let events = self.logs.get(&kind.id).map(|log| &log.events);
        let later = events
            .into_iter()
            .flatten()
            .rev()
            .take_while(|event| event.revision > revision);
        for event in later {
            match &event.before {
                Some(before) => objects.insert(event.key.place(), before.clone()),
                None => objects.remove(&event.key.place()),
            };
        }
        objects
    }
}

impl ListPage {
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.clone().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}
