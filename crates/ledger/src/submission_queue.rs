//! Bounded submission queue of the ledger writer.
//!
//! A commit costs the same flush for one operation as for fifty. So an idle writer is not woken by the first submission, but by
//! the runtime once it has no other task to run: tasks that were about to submit have done so by then. No timer decides; a
//! timeout exists only for a runtime that never becomes idle.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Queue length that wakes the writer immediately.
const WAKE_LEN: usize = 32;
/// If fewer operations than this part of the last batch are queued after a commit, more are about to be submitted.
const FEW: usize = 4;
/// How long the writer waits for a runtime that does not become idle.
const WAKE_MAX: Duration = Duration::from_millis(5);

/// Numbers the sleeps of all writers.
static SLEEPS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The sleep that this thread has requested a wake-up from. Each thread requests its own, since another may be kept from
    /// running.
    static REQUESTED_FOR: Cell<u64> = const { Cell::new(0) };
}

/// The writer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterStopped;

/// Submits operations; cheap to clone. The writer ends when the last one is dropped.
#[derive(Debug)]
pub(crate) struct Submitter<T: Send + 'static>(Arc<Guard<T>>);

#[derive(Debug)]
struct Guard<T: Send + 'static>(Arc<SubmissionQueue<T>>);

/// Receives operations in batches.
#[derive(Debug)]
pub(crate) struct BatchReceiver<T: Send + 'static> {
    queue: Arc<SubmissionQueue<T>>,
    /// Length of the last batch.
    last: usize,
}

/// Room for one operation.
#[derive(Debug)]
pub(crate) struct Permit<'a, T: Send + 'static>(&'a Arc<SubmissionQueue<T>>);

#[derive(Debug)]
struct SubmissionQueue<T> {
    state: Mutex<State<T>>,
    woken: Condvar,
    /// Free slots.
    room: Semaphore,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// The writer sleeps until it is woken from this sleep.
    sleep: Option<u64>,
    /// Runtime of the last wake-up request.
    runtime: Option<Handle>,
    /// Nothing can be submitted any more.
    ended: bool,
}

/// A queue with this many slots.
pub(crate) fn submission_queue<T: Send + 'static>(slots: usize) -> (Submitter<T>, BatchReceiver<T>) {
    let state = State { waiting: VecDeque::new(), sleep: None, runtime: None, ended: false };
    let queue =
        Arc::new(SubmissionQueue { state: Mutex::new(state), woken: Condvar::new(), room: Semaphore::new(slots) });
    (Submitter(Arc::new(Guard(queue.clone()))), BatchReceiver { queue, last: 0 })
}

impl<T> SubmissionQueue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut state: MutexGuard<'_, State<T>>) {
        state.sleep = None;
        drop(state);
        self.woken.notify_one();
    }
}

/// Wakes the writer from one sleep when it is dropped: after its runtime has run it, or with the runtime.
struct WakeRequest<T> {
    queue: Arc<SubmissionQueue<T>>,
    sleep: u64,
}

impl<T> Drop for WakeRequest<T> {
    fn drop(&mut self) {
        let state = self.queue.state();
        if state.sleep == Some(self.sleep) {
            self.queue.wake(state);
        }
    }
}

impl<T: Send + 'static> WakeRequest<T> {
    /// Wakes when the runtime has run its other tasks.
    fn on(self, runtime: &Handle) {
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            drop(self);
        });
    }
}

impl<T: Send + 'static> Clone for Submitter<T> {
    fn clone(&self) -> Submitter<T> {
        Submitter(self.0.clone())
    }
}

impl<T: Send + 'static> Submitter<T> {
    /// Waits for room.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, WriterStopped> {
        // The slot becomes free when the writer has received the operation.
        self.0.0.room.acquire().await.map_err(|_| WriterStopped)?.forget();
        Ok(Permit(&self.0.0))
    }
}

impl<T: Send + 'static> Permit<'_, T> {
    /// Enqueues the item; wakes an idle writer.
    pub fn submit(self, item: T) {
        let mut state = self.0.state();
        if state.ended {
            return;
        }
        state.waiting.push_back(item);
        let Some(sleep) = state.sleep else { return };
        if state.waiting.len() >= WAKE_LEN {
            return self.0.wake(state);
        }
        if REQUESTED_FOR.replace(sleep) == sleep {
            return;
        }
        // Only a runtime that runs this very task is sure to continue.
        let runtime = tokio::task::try_id().and_then(|_| Handle::try_current().ok());
        state.runtime.clone_from(&runtime);
        drop(state);
        let request = WakeRequest { queue: self.0.clone(), sleep };
        match runtime {
            Some(runtime) => request.on(&runtime),
            None => drop(request),
        }
    }
}

impl<T: Send + 'static> Drop for Guard<T> {
    /// Nothing can be submitted any more: the writer receives the rest and ends.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        self.0.wake(state);
    }
}

impl<T: Send + 'static> BatchReceiver<T> {
    /// Waits for operations and receives at most `max` of them in their order. Returns 0 once the queue is empty and nothing can be
    /// submitted any more.
    pub fn recv_batch(&mut self, batch: &mut Vec<T>, max: usize) -> usize {
        let mut state = self.queue.state();
        if state.waiting.is_empty() || state.waiting.len() < self.last / FEW {
            state = self.sleep(state);
        }
        let count = state.waiting.len().min(max);
        batch.extend(state.waiting.drain(..count));
        drop(state);
        self.queue.room.add_permits(count);
        self.last = count;
        count
    }

    /// Sleeps until it is woken and the queue is not empty.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while !state.ended {
            let sleep = SLEEPS.fetch_add(1, Ordering::Relaxed) + 1;
            state.sleep = Some(sleep);
            if state.waiting.is_empty() {
                let slept = self.queue.woken.wait_while(state, |state| state.sleep.is_some());
                state = slept.unwrap_or_else(PoisonError::into_inner);
            } else {
                state = self.gather(state, sleep);
            }
            if !state.waiting.is_empty() {
                break;
            }
        }
        state.sleep = None;
        state
    }

    /// A few operations are queued. The runtime that they came from runs its other tasks first, which may submit more.
    fn gather<'a>(&'a self, state: MutexGuard<'a, State<T>>, sleep: u64) -> MutexGuard<'a, State<T>> {
        let Some(runtime) = state.runtime.clone() else { return state };
        drop(state);
        WakeRequest { queue: self.queue.clone(), sleep }.on(&runtime);
        let slept = self.queue.woken.wait_timeout_while(self.queue.state(), WAKE_MAX, |state| state.sleep.is_some());
        slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<T: Send + 'static> Drop for BatchReceiver<T> {
    /// The writer ends: queued operations are dropped, and nothing finds room any more.
    fn drop(&mut self) {
        self.queue.room.close();
        let mut state = self.queue.state();
        state.ended = true;
        let queued = std::mem::take(&mut state.waiting);
        drop(state);
        drop(queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn submit<T: Send + 'static>(submitter: &Submitter<T>, item: T) -> Result<(), WriterStopped> {
        submitter.reserve().await.map(|permit| permit.submit(item))
    }

    /// Outside of a runtime, while there is room.
    fn submit_now(submitter: &Submitter<u32>, item: u32) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let submitted = std::pin::pin!(submit(submitter, item)).as_mut().poll(&mut context);
        assert_eq!(submitted, std::task::Poll::Ready(Ok(())));
    }

    /// Receives everything and returns the batches.
    fn batches(mut receiver: BatchReceiver<u32>) -> std::thread::JoinHandle<Vec<Vec<u32>>> {
        std::thread::spawn(move || {
            let mut batches = vec![];
            loop {
                let mut batch = vec![];
                if receiver.recv_batch(&mut batch, 64) == 0 {
                    return batches;
                }
                batches.push(batch);
            }
        })
    }

    /// A queue whose writer sleeps.
    fn idle() -> (Submitter<u32>, std::thread::JoinHandle<Vec<Vec<u32>>>) {
        let (submitter, receiver) = submission_queue(100);
        let writer = batches(receiver);
        while submitter.0.0.state().sleep.is_none() {
            std::thread::yield_now();
        }
        (submitter, writer)
    }

    /// Waits until the writer has received everything, without running other tasks of the runtime.
    fn wait_until_received(submitter: &Submitter<u32>) {
        while !submitter.0.0.state().waiting.is_empty() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn tasks_that_are_about_to_submit_share_a_batch() {
        let (submitter, writer) = idle();
        let tasks = (0..20).map(|n| {
            let submitter = submitter.clone();
            tokio::spawn(async move {
                submit(&submitter, n).await.unwrap();
                // Long enough for a writer that was woken to receive it alone.
                std::thread::sleep(Duration::from_millis(1));
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        drop(submitter);
        let batches = tokio::task::spawn_blocking(|| writer.join().unwrap()).await.unwrap();
        assert_eq!(batches, [(0..20).collect::<Vec<u32>>()]);
    }

    #[tokio::test]
    async fn a_long_queue_wakes_the_writer_immediately() {
        let (submitter, writer) = idle();
        let busy = async move {
            for n in 0..WAKE_LEN as u32 {
                submit(&submitter, n).await.unwrap();
            }
            wait_until_received(&submitter);
        };
        tokio::spawn(busy).await.unwrap();
        assert_eq!(writer.join().unwrap(), [(0..WAKE_LEN as u32).collect::<Vec<u32>>()]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_blocked_thread_does_not_delay_other_submitters() {
        let (submitter, writer) = idle();
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        let first = submitter.clone();
        let first = tokio::spawn(async move {
            submit(&first, 1).await.unwrap();
            held.recv().unwrap();
        });
        while submitter.0.0.state().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        let second = submitter.clone();
        tokio::spawn(async move { submit(&second, 2).await }).await.unwrap().unwrap();
        wait_until_received(&submitter);
        go_on.send(()).unwrap();
        first.await.unwrap();
        drop(submitter);
        assert_eq!(writer.join().unwrap().concat(), [1, 2]);
    }

    #[test]
    fn a_submission_outside_of_a_runtime_wakes_the_writer() {
        let (submitter, writer) = idle();
        submit_now(&submitter, 7);
        wait_until_received(&submitter);
        drop(submitter);
        assert_eq!(writer.join().unwrap(), [[7]]);
    }

    #[test]
    fn a_runtime_that_ends_still_wakes_the_writer() {
        let (submitter, writer) = idle();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let joined = submitter.clone();
        // It ends before the wake-up task has run.
        runtime.block_on(async move { tokio::spawn(async move { submit(&joined, 7).await }).await }).unwrap().unwrap();
        drop(runtime);
        wait_until_received(&submitter);
        drop(submitter);
        assert_eq!(writer.join().unwrap(), [[7]]);
    }

    #[tokio::test]
    async fn room_is_bounded_and_freed_by_receiving() {
        let (submitter, mut receiver) = submission_queue(2);
        submit(&submitter, 1).await.unwrap();
        submit(&submitter, 2).await.unwrap();
        let third = tokio::spawn({
            let submitter = submitter.clone();
            async move { submit(&submitter, 3).await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        let mut batch = vec![];
        assert_eq!(receiver.recv_batch(&mut batch, 1), 1);
        assert_eq!(third.await.unwrap(), Ok(()));
        assert_eq!(receiver.recv_batch(&mut batch, 9), 2);
        assert_eq!(batch, [1, 2, 3]);
    }

    #[tokio::test]
    async fn submitters_fail_once_the_writer_has_ended() {
        let (submitter, receiver) = submission_queue(1);
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        submit(&submitter, held).await.unwrap();
        drop(receiver);
        assert!(dropped.await.is_err(), "queued items are dropped");
        assert_eq!(submitter.reserve().await.err(), Some(WriterStopped));
    }

    #[test]
    fn queued_items_are_received_after_the_last_submitter_is_dropped() {
        let (submitter, mut receiver) = submission_queue(3);
        submit_now(&submitter, 5);
        drop(submitter);
        let mut batch = vec![];
        assert_eq!((receiver.recv_batch(&mut batch, 9), receiver.recv_batch(&mut batch, 9)), (1, 0));
        assert_eq!(batch, [5]);
    }
}
