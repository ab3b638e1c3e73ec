//! Orders the calls that arrived together.

use std::collections::HashMap;

use super::batch::Entry;
use crate::Operation;

/// Puts calls of one kind together, so that they share a message. Undos are first: an attempt that follows must not
/// meet the remains of an earlier one. Calls for one lock keep their order: a release follows a renewal that was
/// requested before it, and precedes an attempt that was requested after it (P-10).
pub(super) fn sort(entries: &mut Vec<Entry>) {
    let first = entries.first().map(kind);
    if entries.iter().all(|entry| Some(kind(entry)) == first) {
        return;
    }
    let mut last: HashMap<&str, (usize, (Operation, bool))> = HashMap::new();
    let mut waves = Vec::with_capacity(entries.len());
    for entry in entries.iter() {
        let kind = kind(entry);
        let wave = match last.get(entry.lock.lease.as_str()) {
            None => 0,
            Some((wave, before)) => wave + usize::from(*before != kind),
        };
        last.insert(&entry.lock.lease, (wave, kind));
        waves.push((wave, kind.0 != Operation::Undo, kind));
    }
    let mut sorted: Vec<_> = waves.into_iter().zip(entries.drain(..)).collect();
    sorted.sort_by_key(|(key, _)| *key);
    entries.extend(sorted.into_iter().map(|(_, entry)| entry));
}

fn kind(entry: &Entry) -> (Operation, bool) {
    entry.item.kind()
}
