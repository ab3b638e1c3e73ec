//! Measures rslock, the Redlock library of crates.io, on the same masters: round trips without the checks of this
//! protocol.

use std::time::Duration;

use rslock::{Lock, LockManager};

#[derive(Clone)]
pub struct Rslock(LockManager);

impl Rslock {
    pub async fn connect(urls: &[String]) -> Self {
        let contestant = Self(LockManager::new(urls.iter().map(String::as_str).collect()));
        // The first use opens the connections and loads the scripts.
        let lock = contestant.acquire("rslock:first", Duration::from_secs(15)).await;
        contestant.renew(&lock, Duration::from_secs(15)).await;
        contestant.release(&lock).await;
        contestant
    }

    pub async fn acquire(&self, key: &str, lease: Duration) -> Lock {
        self.0.lock(key, lease).await.unwrap()
    }

    pub async fn renew(&self, lock: &Lock, lease: Duration) {
        self.0.extend(lock, lease).await.unwrap();
    }

    pub async fn release(&self, lock: &Lock) {
        self.0.unlock(lock).await;
    }
}
