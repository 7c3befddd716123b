//! Work divided among the threads of a pool, or done by the calling thread.
//!
//! A thread outside all pools does its work alone. rayon would use its global pool there, and
//! starts the threads of that pool as soon as it is asked for anything, even for their number.
//! Kernels therefore divide their work by [`thread_count`] and run it with [`Parallel`], which call
//! rayon in pools only.

use rayon::iter::IndexedParallelIterator;
use rayon::iter::plumbing::{Producer, ProducerCallback};

/// Number of threads that share the work of the calling thread.
pub(crate) fn thread_count() -> usize {
    #[expect(clippy::disallowed_methods, reason = "asked in a pool")]
    match rayon::current_thread_index() {
        Some(_) => rayon::current_num_threads(),
        None => 1,
    }
}

/// Parallel iterators that also run on a single thread.
pub(crate) trait Parallel: IndexedParallelIterator {
    /// Calls `work` with each item; in order, if the calling thread is alone.
    fn run_parallel(self, work: impl Fn(Self::Item) + Sync + Send) {
        #[expect(clippy::disallowed_methods, reason = "asked in a pool")]
        match thread_count() {
            1 => self.with_producer(InOrder(work)),
            _ => self.for_each(work),
        }
    }

    /// Calls `work` with each item and a state that `init` makes once for a run of items.
    fn run_parallel_with<T>(
        self,
        init: impl Fn() -> T + Sync + Send,
        work: impl Fn(&mut T, Self::Item) + Sync + Send,
    ) {
        #[expect(clippy::disallowed_methods, reason = "asked in a pool")]
        match thread_count() {
            1 => {
                let mut own = init();
                self.with_producer(InOrder(|item| work(&mut own, item)));
            }
            _ => self.for_each_init(init, work),
        }
    }
}

impl<I: IndexedParallelIterator> Parallel for I {}

/// Calls its function with all items of a producer, without splitting it.
struct InOrder<F>(F);

impl<T, F: FnMut(T)> ProducerCallback<T> for InOrder<F> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        producer.into_iter().for_each(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rayon::prelude::*;

    use super::*;
    use crate::threads::on_threads;

    /// Sums of rows of two, by `run_parallel` and by `run_parallel_with`, and whether other threads took part.
    fn sums(len: usize) -> (Vec<usize>, Vec<usize>, bool) {
        let own = thread::current().id();
        let numbers: Vec<usize> = (0..len).collect();
        let other = AtomicBool::new(false);
        let note = || {
            let here = thread::current().id() == own;
            other.fetch_or(!here, Ordering::Relaxed);
        };
        let (mut first, mut second) = (vec![0; len.div_ceil(2)], vec![0; len.div_ceil(2)]);
        let rows = first.par_iter_mut().zip(numbers.par_chunks(2)).enumerate();
        rows.with_min_len(2).run_parallel(|(at, (sum, row))| {
            note();
            *sum = at + row.iter().sum::<usize>();
        });
        let rows: Vec<_> = second.iter_mut().zip(numbers.chunks(2)).collect();
        rows.into_par_iter().enumerate().run_parallel_with(
            || 0,
            |last, (at, (sum, row))| {
                note();
                *last = row.iter().sum();
                *sum = at + *last;
            },
        );
        (first, second, other.into_inner())
    }

    #[test]
    fn work_is_the_same_on_one_thread_and_on_many() {
        for len in [0, 1, 2, 7, 1000] {
            let (first, second, other) = sums(len);
            let row = |at: usize| (2 * at..len.min(2 * at + 2)).sum::<usize>() + at;
            let expected = (0..len.div_ceil(2)).map(row);
            assert_eq!(first, expected.collect::<Vec<_>>());
            assert_eq!(first, second);
            assert!(!other, "{len}");
            let (first_shared, second_shared, _) = on_threads(3, || sums(len));
            assert_eq!((first_shared, second_shared), (first, second));
        }
    }

    #[test]
    fn a_thread_of_no_pool_is_alone() {
        assert_eq!(thread_count(), 1);
        assert_eq!(on_threads(3, thread_count), 3);
        assert_eq!(on_threads(1, thread_count), 1);
    }
}
