//! The line before the writer.
//!
//! A commit costs the same flush for one operation as for fifty. So a writer at rest is not woken by the first that comes, but by
//! the runtime as soon as it has nothing else at hand: whoever was about to come has come by then. No timer decides; there is one only for a runtime that never has its turn.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// So many wake the writer at once.
const WAKE_LEN: usize = 32;
/// When fewer are found after a commit than this part of it, more of them are about to come.
const FEW: usize = 4;
/// A runtime that has not come to it after this is not waited for.
const CALL_MAX: Duration = Duration::from_millis(5);

/// No two rests have the same number, whatever line they are of.
static RESTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The rest that this thread has called the writer out of, or is about to. Each thread does so for itself, since another may be
    /// kept from running.
    static CALLED_FOR: Cell<u64> = const { Cell::new(0) };
}

/// The writer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterStopped;

/// Where to join the line; cheap to clone. The writer ends when the last one is gone.
#[derive(Debug)]
pub(crate) struct Submitter<T: Send + 'static>(Arc<Hold<T>>);

#[derive(Debug)]
struct Hold<T: Send + 'static>(Arc<SubmissionQueue<T>>);

/// Where the writer takes what has come.
#[derive(Debug)]
pub(crate) struct BatchReceiver<T: Send + 'static> {
    line: Arc<SubmissionQueue<T>>,
    /// How many were taken the last time.
    last: usize,
}

/// Room for one in the line.
#[derive(Debug)]
pub(crate) struct Permit<'a, T: Send + 'static>(&'a Arc<SubmissionQueue<T>>);

#[derive(Debug)]
struct SubmissionQueue<T> {
    state: Mutex<State<T>>,
    called: Condvar,
    /// Slots that are free.
    room: Semaphore,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// The writer sleeps until it is called out of this rest.
    rest: Option<u64>,
    /// Where the last call was made from.
    runtime: Option<Handle>,
    /// Nobody can join any more.
    ended: bool,
}

/// A line with room for so many.
pub(crate) fn submission_queue<T: Send + 'static>(slots: usize) -> (Submitter<T>, BatchReceiver<T>) {
    let state = State { waiting: VecDeque::new(), rest: None, runtime: None, ended: false };
    let line =
        Arc::new(SubmissionQueue { state: Mutex::new(state), called: Condvar::new(), room: Semaphore::new(slots) });
    (Submitter(Arc::new(Hold(line.clone()))), BatchReceiver { line, last: 0 })
}

impl<T> SubmissionQueue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut state: MutexGuard<'_, State<T>>) {
        state.rest = None;
        drop(state);
        self.called.notify_one();
    }
}

/// A call to the writer, out of the rest that it was made for. It is heard when this is dropped: run by its runtime, or ended
/// with it.
struct WakeRequest<T> {
    line: Arc<SubmissionQueue<T>>,
    rest: u64,
}

impl<T> Drop for WakeRequest<T> {
    fn drop(&mut self) {
        let state = self.line.state();
        if state.rest == Some(self.rest) {
            self.line.wake(state);
        }
    }
}

impl<T: Send + 'static> WakeRequest<T> {
    /// Calls when the runtime has run what it has at hand.
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
    /// Waits for room in the line.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, WriterStopped> {
        // It comes free when the writer has taken who stands there.
        self.0.0.room.acquire().await.map_err(|_| WriterStopped)?.forget();
        Ok(Permit(&self.0.0))
    }
}

impl<T: Send + 'static> Permit<'_, T> {
    /// Stands there.
    pub fn submit(self, item: T) {
        let mut state = self.0.state();
        if state.ended {
            return;
        }
        state.waiting.push_back(item);
        let Some(rest) = state.rest else { return };
        if state.waiting.len() >= WAKE_LEN {
            return self.0.wake(state);
        }
        if CALLED_FOR.replace(rest) == rest {
            return;
        }
        // Only a runtime that runs this very task is sure to go on.
        let runtime = tokio::task::try_id().and_then(|_| Handle::try_current().ok());
        state.runtime.clone_from(&runtime);
        drop(state);
        let call = WakeRequest { line: self.0.clone(), rest };
        match runtime {
            Some(runtime) => call.on(&runtime),
            None => drop(call),
        }
    }
}

impl<T: Send + 'static> Drop for Hold<T> {
    /// Nobody can join any more: the writer is to take who is left, and end.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        self.0.wake(state);
    }
}

impl<T: Send + 'static> BatchReceiver<T> {
    /// Waits until somebody is there, and takes them in their order, so many at the most. None are taken once nobody is there and
    /// nobody can come any more.
    pub fn recv_batch(&mut self, batch: &mut Vec<T>, max: usize) -> usize {
        let mut state = self.line.state();
        if state.waiting.is_empty() || state.waiting.len() < self.last / FEW {
            state = self.rest(state);
        }
        let count = state.waiting.len().min(max);
        batch.extend(state.waiting.drain(..count));
        drop(state);
        self.line.room.add_permits(count);
        self.last = count;
        count
    }

    /// Sleeps until it is called and somebody is there.
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while !state.ended {
            let rest = RESTS.fetch_add(1, Ordering::Relaxed) + 1;
            state.rest = Some(rest);
            if state.waiting.is_empty() {
                let slept = self.line.called.wait_while(state, |state| state.rest.is_some());
                state = slept.unwrap_or_else(PoisonError::into_inner);
            } else {
                state = self.gather(state, rest);
            }
            if !state.waiting.is_empty() {
                break;
            }
        }
        state.rest = None;
        state
    }

    /// A few are there. The runtime that they came from has its turn, and may bring more.
    fn gather<'a>(&'a self, state: MutexGuard<'a, State<T>>, rest: u64) -> MutexGuard<'a, State<T>> {
        let Some(runtime) = state.runtime.clone() else { return state };
        drop(state);
        WakeRequest { line: self.line.clone(), rest }.on(&runtime);
        let slept = self.line.called.wait_timeout_while(self.line.state(), CALL_MAX, |state| state.rest.is_some());
        slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<T: Send + 'static> Drop for BatchReceiver<T> {
    /// The writer ends. Who stands in the line is let go, and nobody finds room any more.
    fn drop(&mut self) {
        self.line.room.close();
        let mut state = self.line.state();
        state.ended = true;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn join<T: Send + 'static>(entrance: &Submitter<T>, item: T) -> Result<(), WriterStopped> {
        entrance.reserve().await.map(|slot| slot.submit(item))
    }

    /// In no runtime, where there is room.
    fn join_at_once(entrance: &Submitter<u32>, item: u32) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let joined = std::pin::pin!(join(entrance, item)).as_mut().poll(&mut context);
        assert_eq!(joined, std::task::Poll::Ready(Ok(())));
    }

    /// Takes everything, and tells the batches.
    fn batches(mut exit: BatchReceiver<u32>) -> std::thread::JoinHandle<Vec<Vec<u32>>> {
        std::thread::spawn(move || {
            let mut batches = vec![];
            loop {
                let mut batch = vec![];
                if exit.recv_batch(&mut batch, 64) == 0 {
                    return batches;
                }
                batches.push(batch);
            }
        })
    }

    /// A line whose writer is at rest.
    fn at_rest() -> (Submitter<u32>, std::thread::JoinHandle<Vec<Vec<u32>>>) {
        let (entrance, exit) = submission_queue(100);
        let writer = batches(exit);
        while entrance.0.0.state().rest.is_none() {
            std::thread::yield_now();
        }
        (entrance, writer)
    }

    /// Waits until the writer has taken everybody, and lets nothing else of the runtime run meanwhile.
    fn all_taken(entrance: &Submitter<u32>) {
        while !entrance.0.0.state().waiting.is_empty() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn who_is_about_to_come_is_waited_for() {
        let (entrance, writer) = at_rest();
        let tasks = (0..20).map(|n| {
            let entrance = entrance.clone();
            tokio::spawn(async move {
                join(&entrance, n).await.unwrap();
                // Time enough for a writer that was woken to take it alone.
                std::thread::sleep(Duration::from_millis(1));
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        drop(entrance);
        let batches = tokio::task::spawn_blocking(|| writer.join().unwrap()).await.unwrap();
        assert_eq!(batches, [(0..20).collect::<Vec<u32>>()]);
    }

    #[tokio::test]
    async fn many_are_not_kept_waiting() {
        let (entrance, writer) = at_rest();
        let busy = async move {
            for n in 0..WAKE_LEN as u32 {
                join(&entrance, n).await.unwrap();
            }
            all_taken(&entrance);
        };
        tokio::spawn(busy).await.unwrap();
        assert_eq!(writer.join().unwrap(), [(0..WAKE_LEN as u32).collect::<Vec<u32>>()]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_that_is_held_up_holds_up_nobody_else() {
        let (entrance, writer) = at_rest();
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        let first = entrance.clone();
        let first = tokio::spawn(async move {
            join(&first, 1).await.unwrap();
            held.recv().unwrap();
        });
        while entrance.0.0.state().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        let second = entrance.clone();
        tokio::spawn(async move { join(&second, 2).await }).await.unwrap().unwrap();
        all_taken(&entrance);
        go_on.send(()).unwrap();
        first.await.unwrap();
        drop(entrance);
        assert_eq!(writer.join().unwrap().concat(), [1, 2]);
    }

    #[test]
    fn whoever_comes_without_a_runtime_wakes_the_writer() {
        let (entrance, writer) = at_rest();
        join_at_once(&entrance, 7);
        all_taken(&entrance);
        drop(entrance);
        assert_eq!(writer.join().unwrap(), [[7]]);
    }

    #[test]
    fn a_runtime_that_ends_leaves_nobody_behind() {
        let (entrance, writer) = at_rest();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let joined = entrance.clone();
        // It ends before the call has had its turn.
        runtime.block_on(async move { tokio::spawn(async move { join(&joined, 7).await }).await }).unwrap().unwrap();
        drop(runtime);
        all_taken(&entrance);
        drop(entrance);
        assert_eq!(writer.join().unwrap(), [[7]]);
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_and_more_as_they_are_taken() {
        let (entrance, mut exit) = submission_queue(2);
        join(&entrance, 1).await.unwrap();
        join(&entrance, 2).await.unwrap();
        let third = tokio::spawn({
            let entrance = entrance.clone();
            async move { join(&entrance, 3).await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        let mut batch = vec![];
        assert_eq!(exit.recv_batch(&mut batch, 1), 1);
        assert_eq!(third.await.unwrap(), Ok(()));
        assert_eq!(exit.recv_batch(&mut batch, 9), 2);
        assert_eq!(batch, [1, 2, 3]);
    }

    #[tokio::test]
    async fn when_the_writer_is_gone_nobody_waits_for_it() {
        let (entrance, exit) = submission_queue(1);
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        join(&entrance, held).await.unwrap();
        drop(exit);
        assert!(dropped.await.is_err(), "who stood in the line is let go");
        assert_eq!(entrance.reserve().await.err(), Some(WriterStopped));
    }

    #[test]
    fn the_last_to_come_are_taken_after_the_entrance_is_gone() {
        let (entrance, mut exit) = submission_queue(3);
        join_at_once(&entrance, 5);
        drop(entrance);
        let mut batch = vec![];
        assert_eq!((exit.recv_batch(&mut batch, 9), exit.recv_batch(&mut batch, 9)), (1, 0));
        assert_eq!(batch, [5]);
    }
}
