//! Measures for how long a busy machine pauses an operator.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::http;

/// The answers of the operator to a request each 100 ms, which show how long it or this process was paused.
pub struct Answers {
    /// The longest time between two answers since the last reset, and the time of the last answer.
    seen: Arc<Mutex<(Duration, Instant)>>,
    thread: JoinHandle<()>,
}

impl Answers {
    pub fn of(port: u16) -> Self {
        let seen = Arc::new(Mutex::new((Duration::ZERO, Instant::now())));
        let of_thread = Arc::downgrade(&seen);
        let thread = thread::spawn(move || {
            while let Some(seen) = of_thread.upgrade() {
                thread::sleep(Duration::from_millis(100));
                let _ = http::get(port, "/livez");
                let mut seen = seen.lock().unwrap();
                *seen = (seen.0.max(seen.1.elapsed()), Instant::now());
            }
        });
        Self { seen, thread }
    }

    pub fn reset(&self) {
        self.seen.lock().unwrap().0 = Duration::ZERO;
    }

    /// Returns the longest time without an answer since the last reset.
    pub fn delay(&self) -> Duration {
        let (longest, last) = *self.seen.lock().unwrap();
        longest.max(last.elapsed())
    }

    /// Ends the requests; returns the longest time without an answer.
    pub fn end(self) -> Duration {
        let delay = self.delay();
        drop(self.seen);
        self.thread.join().unwrap();
        delay
    }
}
