//! The series of targets: whether each is in the desired state, as reported by its task.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    Telemetry,
    text::{Text, labels},
};
use crate::api::target::Action;

/// The rows by a unique number, since one target may follow another under the same name.
#[derive(Debug, Default)]
pub(super) struct Targets(Mutex<(u64, HashMap<u64, Row>)>);

#[derive(Debug)]
struct Row {
    labels: String,
    /// `None` while this process does not switch the target.
    enforced: Option<bool>,
}

impl Targets {
    fn with<T>(&self, act: impl FnOnce(&mut (u64, HashMap<u64, Row>)) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn write(&self, text: &mut Text) {
        let name = "redlock_target_enforced";
        let help = "Whether the target is in the desired state in this cluster; 0 also while the operator is paused \
            for the target.";
        text.family(name, "gauge", help);
        self.with(|(_, rows)| {
            for row in rows.values() {
                if let Some(enforced) = row.enforced {
                    text.sample(name, &row.labels, u8::from(enforced));
                }
            }
        });
    }
}

/// The series of one target. It is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct TargetSeries {
    telemetry: Arc<Telemetry>,
    key: u64,
}

impl TargetSeries {
    /// Creates the series. `lock` is the namespace and name of the object that declares the lock.
    #[must_use]
    pub(crate) fn new(telemetry: &Arc<Telemetry>, lock: (&str, &str), target: &str, action: Action) -> Self {
        let labels = labels(&[
            ("lock_namespace", lock.0),
            ("lock", lock.1),
            ("target", target),
            ("action", action.name()),
        ]);
        let key = telemetry.targets.with(|(next, rows)| {
            *next += 1;
            let row = Row {
                labels,
                enforced: None,
            };
            rows.insert(*next, row);
            *next
        });
        Self {
            telemetry: telemetry.clone(),
            key,
        }
    }

    /// Sets whether the target is in the desired state; `None` while this process does not decide that.
    pub(crate) fn set(&self, enforced: Option<bool>) {
        self.telemetry.targets.with(|(_, rows)| {
            if let Some(row) = rows.get_mut(&self.key) {
                row.enforced = enforced;
            }
        });
    }
}

impl Drop for TargetSeries {
    fn drop(&mut self) {
        self.telemetry.targets.with(|(_, rows)| rows.remove(&self.key));
    }
}
