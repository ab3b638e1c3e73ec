//! Records the pods with the label as a watcher of the pods sees them, event by event.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

use super::ROLE;

pub type Names = BTreeSet<String>;

/// A watch of the pods, which ends on drop.
pub struct Sightings {
    seen: Arc<Mutex<Vec<(Instant, Names)>>>,
    task: JoinHandle<()>,
}

impl Sightings {
    /// Watches all pods, with or without the label, independently of the operator.
    pub fn of(client: Client, namespace: &str) -> Self {
        let api = Api::<Pod>::namespaced(client, namespace);
        let seen = Arc::new(Mutex::new(vec![(Instant::now(), Names::new())]));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(api, watcher::Config::default()));
            let mut labelled = BTreeMap::new();
            while let Some(event) = events.next().await {
                match event.expect("a watch of pods") {
                    Event::Apply(pod) | Event::InitApply(pod) => {
                        let uid = pod.uid().unwrap();
                        if pod.labels().get(ROLE).is_some_and(|role| role == "active") {
                            labelled.insert(uid, pod.name_any());
                        } else {
                            labelled.remove(&uid);
                        }
                    }
                    Event::Delete(pod) => {
                        labelled.remove(&pod.uid().unwrap());
                    }
                    Event::Init | Event::InitDone => {}
                }
                let names: Names = labelled.values().cloned().collect();
                let mut seen = shared.lock().unwrap();
                if seen.last().is_none_or(|(_, before)| *before != names) {
                    seen.push((Instant::now(), names));
                }
            }
        });
        Self { seen, task }
    }

    pub fn all(&self) -> Vec<(Instant, Names)> {
        self.seen.lock().unwrap().clone()
    }

    pub fn now(&self) -> Names {
        self.seen.lock().unwrap().last().unwrap().1.clone()
    }

    /// Returns the number of times that more than one pod had the label.
    pub fn doubles(&self) -> usize {
        self.all().iter().filter(|(_, names)| names.len() > 1).count()
    }

    /// Returns the beginning and the end of the first period after `asked` in which no pod has the label.
    pub fn gap_after(&self, asked: Instant) -> Option<(Instant, Instant)> {
        let all = self.all();
        let first = all
            .iter()
            .position(|(at, names)| *at >= asked && names.is_empty())?;
        Some((all[first].0, all.get(first + 1)?.0))
    }
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.task.abort();
    }
}
