//! Builds conditions according to the API conventions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

pub(super) use crate::api::vocabulary::ConditionType;
use crate::{
    api::bounds::{CONDITION_LIMIT, MESSAGE_LIMIT},
    controller::problem::Reason,
};

/// A builder for the conditions of one object.
#[derive(Debug)]
pub(super) struct Conditions<'a> {
    before: &'a [Condition],
    generation: i64,
    now: Timestamp,
    list: Vec<Condition>,
    /// Types that are removed from the object.
    withdrawn: Vec<ConditionType>,
}

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    True,
    False,
    Unknown,
}

impl From<bool> for Truth {
    fn from(truth: bool) -> Self {
        if truth { Self::True } else { Self::False }
    }
}

impl Truth {
    const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl<'a> Conditions<'a> {
    pub(super) fn new(before: &'a [Condition], generation: i64, now: Timestamp) -> Self {
        Self {
            before,
            generation,
            now,
            list: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    /// Sets a condition. The transition time changes only with the status.
    pub(super) fn set(
        &mut self,
        kind: ConditionType,
        truth: impl Into<Truth>,
        reason: Reason,
        message: String,
    ) {
        let status = truth.into().name();
        let before = self.before(kind).filter(|before| before.status == status);
        let since = before.map_or(Time(self.now), |before| before.last_transition_time.clone());
        self.list.push(Condition {
            type_: kind.name().to_owned(),
            status: status.to_owned(),
            reason: reason.name().to_owned(),
            message: cut(message),
            observed_generation: Some(self.generation),
            last_transition_time: since,
        });
    }

    pub(super) fn before(&self, kind: ConditionType) -> Option<&'a Condition> {
        self.before
            .iter()
            .find(|condition| condition.type_ == kind.name())
    }

    /// Keeps a condition as it was: its state is not known now.
    pub(super) fn keep(&mut self, kind: ConditionType) {
        self.list.extend(self.before(kind).cloned());
    }

    /// Returns the previous conditions, in which those that were set replace the earlier ones.
    pub(super) fn into_list_before(self) -> Vec<Condition> {
        let mut list = self.before.to_vec();
        for own in self.list {
            match list.iter_mut().find(|other| other.type_ == own.type_) {
                Some(other) => *other = own,
                None => list.insert(0, own),
            }
        }
        list.truncate(CONDITION_LIMIT);
        list
    }

    /// Removes a condition that the operator set before and that no longer applies.
    pub(super) fn withdraw(&mut self, kind: ConditionType) {
        self.withdrawn.push(kind);
    }

    /// Returns all conditions that were set. A condition of any other type belongs to another controller and stays: the
    /// list is a map by type, and a merge patch replaces it as a whole. Those beyond the bound of the definition are
    /// dropped: the API server would refuse the whole status.
    pub(super) fn into_list(self) -> Vec<Condition> {
        let mut list = self.list;
        let foreign = |other: &&Condition| {
            !list.iter().any(|own| own.type_ == other.type_)
                && !self.withdrawn.iter().any(|kind| kind.name() == other.type_)
        };
        let foreign: Vec<Condition> = self.before.iter().filter(foreign).cloned().collect();
        list.extend(foreign);
        list.truncate(CONDITION_LIMIT);
        list
    }
}

/// Cuts a message to the length that the operator writes.
pub(super) fn cut(message: String) -> String {
    cut_to(message, MESSAGE_LIMIT)
}

/// Cuts a text to this number of bytes.
pub(super) fn cut_to(mut text: String, limit: usize) -> String {
    const MORE: char = '…';
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - MORE.len_utf8()));
        text.push(MORE);
    }
    text
}
