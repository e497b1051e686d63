//! Bounded submission queue of the ledger writer: a channel that the writer receives from in batches.
//!
//! While one commit runs, the next operations gather in the channel and share the next commit. An idle writer yields once
//! before it closes a batch, so that callers that were answered together submit together again.

use tokio::sync::mpsc;

/// The writer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterStopped;

/// Sending half; cheap to clone. The writer ends when the last clone is dropped.
#[derive(Debug)]
pub(crate) struct Submitter<T>(mpsc::Sender<T>);

/// Receiving half, owned by the writer.
#[derive(Debug)]
pub(crate) struct BatchReceiver<T>(mpsc::Receiver<T>);

/// A free slot of the queue.
#[derive(Debug)]
pub(crate) struct Permit<'a, T>(mpsc::Permit<'a, T>);

/// A queue with this many slots.
pub(crate) fn submission_queue<T>(slots: usize) -> (Submitter<T>, BatchReceiver<T>) {
    let (sender, receiver) = mpsc::channel(slots);
    (Submitter(sender), BatchReceiver(receiver))
}

impl<T> Clone for Submitter<T> {
    fn clone(&self) -> Submitter<T> {
        Submitter(self.0.clone())
    }
}

impl<T> Submitter<T> {
    /// Waits for a free slot.
    pub(crate) async fn reserve(&self) -> Result<Permit<'_, T>, WriterStopped> {
        self.0.reserve().await.map(Permit).map_err(|_| WriterStopped)
    }
}

impl<T> Permit<'_, T> {
    /// Enqueues the item and wakes an idle writer.
    pub(crate) fn submit(self, item: T) {
        self.0.send(item);
    }
}

impl<T> BatchReceiver<T> {
    /// Blocks until an item is there and appends at most `max` items to the batch, in order. Returns their number; 0 means
    /// that the queue is empty and every submitter is dropped.
    pub(crate) fn recv_batch(&mut self, batch: &mut Vec<T>, max: usize) -> usize {
        let Some(first) = self.0.blocking_recv() else { return 0 };
        batch.push(first);
        // Without the yield a batch of 64 senders has 38 operations, with it 55 (docs/decisions/0002).
        std::thread::yield_now();
        let mut count = 1;
        while count < max {
            let Ok(item) = self.0.try_recv() else { break };
            batch.push(item);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn submit<T>(submitter: &Submitter<T>, item: T) -> Result<(), WriterStopped> {
        submitter.reserve().await.map(|permit| permit.submit(item))
    }

    async fn receive(mut receiver: BatchReceiver<u32>, max: usize) -> (Vec<u32>, BatchReceiver<u32>) {
        let blocking = move || {
            let mut batch = vec![];
            receiver.recv_batch(&mut batch, max);
            (batch, receiver)
        };
        tokio::task::spawn_blocking(blocking).await.unwrap()
    }

    #[tokio::test]
    async fn full_queue_blocks_submitters_until_a_batch_is_received() {
        let (submitter, receiver) = submission_queue(2);
        submit(&submitter, 1).await.unwrap();
        submit(&submitter, 2).await.unwrap();
        let third = tokio::spawn({
            let submitter = submitter.clone();
            async move { submit(&submitter, 3).await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        let (first, receiver) = receive(receiver, 1).await;
        assert_eq!(third.await.unwrap(), Ok(()));
        let (rest, _) = receive(receiver, 9).await;
        assert_eq!((first, rest), (vec![1], vec![2, 3]));
    }

    #[tokio::test]
    async fn stopped_writer_drops_queued_items_and_rejects_new_ones() {
        let (submitter, receiver) = submission_queue(1);
        let (queued, dropped) = tokio::sync::oneshot::channel::<()>();
        submit(&submitter, queued).await.unwrap();
        drop(receiver);
        assert!(dropped.await.is_err());
        assert_eq!(submitter.reserve().await.err(), Some(WriterStopped));
    }

    #[tokio::test]
    async fn queued_items_are_received_after_the_last_submitter_is_dropped() {
        let (submitter, receiver) = submission_queue(3);
        submit(&submitter, 5).await.unwrap();
        drop(submitter);
        let (batch, receiver) = receive(receiver, 9).await;
        let (end, _) = receive(receiver, 9).await;
        assert_eq!((batch, end), (vec![5], vec![]));
    }
}
