//! Polls a task that wakes itself again at once, without scheduling it again.
//!
//! The driver and the connections that it carries are one task and wake each other frequently. Without this
//! module, the runtime would queue the task for each wake, and wake another thread to run it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Number of polls in a row before other tasks run.
const IN_A_ROW: usize = 64;

/// Set while the future is polled.
const POLLED: u8 = 1;
/// An event occurred after the last poll began.
const WOKEN: u8 = 2;

#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, SeqCst) == 0 {
            self.task.wake();
        }
    }
}

/// The state described in the module documentation.
#[derive(Debug)]
pub(super) struct Turns {
    bell: Arc<Bell>,
    waker: Waker,
}

impl Turns {
    pub(super) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self {
            waker: bell.clone().into(),
            bell,
        }
    }

    /// Takes turns until a turn is ready, or until no event has occurred since the last turn began. After a
    /// ready turn, nothing wakes the task: the task must call this method again.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut turn: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.task.register(cx.waker());
        let mut inner = Context::from_waker(&self.waker);
        for _ in 0..IN_A_ROW {
            // A swap, not a store, so that the turn sees the changes made before a wake that is overwritten
            // here.
            self.bell.state.swap(POLLED, SeqCst);
            if let Poll::Ready(output) = turn(&mut inner) {
                return Poll::Ready(output);
            }
            let none = self.bell.state.compare_exchange(POLLED, 0, SeqCst, SeqCst);
            if none.is_ok() {
                return Poll::Pending;
            }
        }
        // The state need not change, because the next poll is certain.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    struct Task {
        turns: Turns,
        count: Arc<Count>,
    }

    impl Task {
        fn new() -> Self {
            let (turns, count) = (Turns::new(), Arc::default());
            Self { turns, count }
        }

        fn poll(&self, turn: impl FnMut(&mut Context<'_>) -> Poll<()>) -> Poll<()> {
            let waker = Waker::from(self.count.clone());
            self.turns.poll(&mut Context::from_waker(&waker), turn)
        }

        fn scheduled(&self) -> usize {
            self.count.0.load(SeqCst)
        }
    }

    #[test]
    fn a_wake_within_a_turn_leads_to_another_turn_and_the_task_is_not_scheduled() {
        let task = Task::new();
        let mut count = 0;
        let polled = task.poll(|cx| {
            count += 1;
            if count < 3 {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        });
        assert_eq!((polled, count, task.scheduled()), (Poll::Pending, 3, 0));
    }

    #[test]
    fn a_wake_between_two_polls_schedules_the_task_once() {
        let task = Task::new();
        for expected in 1..3 {
            let mut waker = None;
            let polled = task.poll(|cx| {
                waker = Some(cx.waker().clone());
                Poll::Pending
            });
            assert_eq!(polled, Poll::Pending);
            waker.iter().for_each(Waker::wake_by_ref);
            waker.iter().for_each(Waker::wake_by_ref);
            assert_eq!(task.scheduled(), expected);
        }
    }

    #[test]
    fn turns_without_end_let_other_tasks_in() {
        let task = Task::new();
        let mut count = 0;
        for expected in 1..3 {
            let polled = task.poll(|cx| {
                count += 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            assert_eq!(polled, Poll::Pending);
            assert_eq!((count, task.scheduled()), (IN_A_ROW * expected, expected));
        }
    }
}
