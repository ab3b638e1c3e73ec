//! The question of a replica, in parts that a server reads whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use serde::{Deserialize, Serialize};

use crate::http_server::LARGEST_BODY;

/// The most bytes of JSON for the names of one question, which leaves room for the rest of [`LARGEST_BODY`].
const NAMES_OF_QUESTION: usize = LARGEST_BODY - 16 * 1024;

/// The locks that a replica asks about, by quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The identity of the replica that asks; empty from a replica of an earlier version.
    #[serde(default)]
    pub(crate) identity: String,
    pub(crate) quorums: BTreeMap<String, BTreeSet<String>>,
}

impl Question {
    /// Returns questions that a server reads whole: together they name the same quorums and locks. A question without
    /// quorums, which only checks the connection, is one.
    pub(super) fn parts(&self) -> Vec<Self> {
        let empty = || Self {
            identity: self.identity.clone(),
            quorums: BTreeMap::new(),
        };
        let mut parts = vec![empty()];
        let mut length = 0;
        for (quorum, locks) in &self.quorums {
            // A quorum without locks is asked about, too.
            let names = iter::once(None).chain(locks.iter().map(Some));
            for lock in names {
                let added = json_length(lock.unwrap_or(quorum));
                if length + added > NAMES_OF_QUESTION {
                    parts.push(empty());
                    length = json_length(quorum);
                }
                length += added;
                if let Some(part) = parts.last_mut() {
                    let named = part.quorums.entry(quorum.clone()).or_default();
                    named.extend(lock.cloned());
                }
            }
        }
        parts
    }
}

/// Returns the length of a name in JSON, with the marks around it.
fn json_length(name: &str) -> usize {
    // A text without maps is always valid; each character has at most six bytes in JSON.
    serde_json::to_string(name).map_or(6 * name.len(), |text| text.len()) + "{:[],}".len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(quorums: usize, locks: usize) -> Question {
        let locks: BTreeSet<String> = (0..locks)
            .map(|lock| format!("namespace-{lock}/a \"lock\""))
            .collect();
        Question {
            identity: "me".to_owned(),
            quorums: (0..quorums)
                .map(|quorum| (format!("quorum-{quorum}"), locks.clone()))
                .collect(),
        }
    }

    #[test]
    fn a_question_about_many_locks_is_asked_in_parts_that_a_server_reads() {
        for (quorums, locks, count) in [(0, 0, 1), (1, 0, 1), (3, 1, 1), (1, 10_000, 2), (3, 10_000, 5)] {
            let question = question(quorums, locks);
            let parts = question.parts();
            assert_eq!(parts.len(), count, "{quorums} quorums with {locks} locks");
            let mut together = Question {
                identity: "me".to_owned(),
                ..Question::default()
            };
            for part in parts {
                assert_eq!(part.identity, "me");
                assert!(serde_json::to_vec(&part).unwrap().len() <= LARGEST_BODY);
                for (quorum, locks) in part.quorums {
                    together.quorums.entry(quorum).or_default().extend(locks);
                }
            }
            assert_eq!(together, question);
        }
    }
}
