//! An application next to an operator. The application trusts the last answer, however old it is: the case
//! that a fencing token protects against.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{Answer, Resource};
use crate::poll::Answers;

const PACE: Duration = Duration::from_millis(50);

/// The number of refused writes of all processes together.
pub type Refused = Arc<AtomicU64>;

#[derive(Debug)]
pub struct Naive {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Naive {
    pub fn start(answers: Arc<Mutex<Answers>>, resource: String, refused: Refused) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let thread = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut ledgers: HashMap<String, Resource> = HashMap::new();
                while !stop.load(Ordering::Relaxed) {
                    let held = answers.lock().unwrap().latest.clone();
                    for (lock, token) in held {
                        let open = || Resource::open(&resource, &lock);
                        let ledger = ledgers.entry(lock.clone()).or_insert_with(open);
                        if ledger.append(token) == Answer::Refused {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    thread::sleep(PACE);
                }
            })
        };
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
