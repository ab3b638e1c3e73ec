//! An implementation of [`Volumes`] whose answer a test sets.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::time::Duration;

use redlock_csi::{PublishError, PublishRequest, UnpublishError, UnpublishRequest, Volumes};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    Ok,
    Hold,
    Invalid,
    NotYet,
    Unavailable,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Seen(String);

impl Seen {
    pub fn published(pod: &str, uid: &str, lock: &str) -> Self {
        Self(format!("publish {pod} {uid} {lock}"))
    }

    pub fn unpublished(uid: &str) -> Self {
        Self(format!("unpublish {uid}"))
    }
}

#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answer: watch::Sender<Answer>,
    ready: AtomicBool,
    held: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Inner {
            answer: watch::Sender::new(Answer::Ok),
            ready: AtomicBool::new(true),
            held: AtomicUsize::new(0),
            seen: Mutex::default(),
        }))
    }
}

impl Gate {
    pub fn answer(&self, answer: Answer) {
        self.0.answer.send_replace(answer);
    }

    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::SeqCst);
    }

    /// Returns the number of calls that wait.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    pub async fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("10 s passed: {:?}", self.0);
    }
}

/// Counts a call that waits until it ends or is dropped.
struct Held<'a>(&'a AtomicUsize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Volumes for Gate {
    async fn publish(&self, request: PublishRequest) -> Result<(), PublishError> {
        let pod = format!("{}/{}", request.pod.namespace, request.pod.name);
        let seen = Seen::published(&pod, &request.pod.uid, &request.lock);
        self.0.seen.lock().unwrap().push(seen);
        self.0.held.fetch_add(1, Ordering::SeqCst);
        let _held = Held(&self.0.held);
        let mut answers = self.0.answer.subscribe();
        let answer = *answers.wait_for(|answer| *answer != Answer::Hold).await.unwrap();
        let reason = "cluster us-1 holds lock report".to_owned();
        match answer {
            Answer::Ok | Answer::Hold => Ok(()),
            Answer::Invalid => Err(PublishError::Invalid(reason)),
            Answer::NotYet => Err(PublishError::NotYet(reason)),
            Answer::Unavailable => Err(PublishError::Unavailable(reason)),
        }
    }

    async fn unpublish(&self, request: UnpublishRequest) -> Result<(), UnpublishError> {
        let seen = Seen::unpublished(request.target.uid());
        self.0.seen.lock().unwrap().push(seen);
        remove(request.target.path())
    }

    fn ready(&self) -> bool {
        self.0.ready.load(Ordering::SeqCst)
    }
}

fn remove(target: &Path) -> Result<(), UnpublishError> {
    match fs::remove_dir_all(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(UnpublishError(error.to_string())),
        Ok(()) | Err(_) => Ok(()),
    }
}
