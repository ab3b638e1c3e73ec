//! Tracks the calls in progress, at most one for each volume.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::{CancellationToken, DropGuard};

/// The calls by target. Each call has a token that cancels it, and another token that is cancelled at its
/// end.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    by_target: Mutex<HashMap<PathBuf, Handle>>,
}

#[derive(Debug, Clone)]
struct Handle {
    cancel: CancellationToken,
    ended: CancellationToken,
}

/// A call in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Arc<Calls>,
    target: PathBuf,
    cancel: CancellationToken,
    _ended: DropGuard,
}

impl Calls {
    /// Begins a call; `None` if a call for the volume is in progress.
    pub(crate) fn begin(self: &Arc<Self>, target: &Path) -> Option<Call> {
        let mut calls = self.lock();
        if calls.contains_key(target) {
            return None;
        }
        let (cancel, ended) = (CancellationToken::new(), CancellationToken::new());
        let handle = Handle {
            cancel: cancel.clone(),
            ended: ended.clone(),
        };
        calls.insert(target.to_owned(), handle);
        Some(Call {
            calls: self.clone(),
            target: target.to_owned(),
            cancel,
            _ended: ended.drop_guard(),
        })
    }

    /// Cancels the call in progress for the volume, waits for its end, and begins another call.
    pub(crate) async fn replace(self: &Arc<Self>, target: &Path) -> Call {
        loop {
            if let Some(call) = self.begin(target) {
                return call;
            }
            let handle = self.lock().get(target).cloned();
            if let Some(handle) = handle {
                handle.cancel.cancel();
                handle.ended.cancelled().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Handle>> {
        // The map is consistent after each statement.
        self.by_target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_replaces_another_one_after_its_end() {
        let calls = Arc::new(Calls::default());
        let target = Path::new("/a");
        let first = calls.begin(target).unwrap();
        assert!(calls.begin(target).is_none());
        assert!(calls.begin(Path::new("/b")).is_some());
        let other = calls.clone();
        let replacing = tokio::spawn(async move { other.replace(Path::new("/a")).await });
        first.cancelled().await;
        assert!(!replacing.is_finished(), "the first call has not ended");
        drop(first);
        let second = replacing.await.unwrap();
        assert!(calls.begin(target).is_none());
        drop(second);
        assert!(calls.begin(target).is_some());
    }
}
