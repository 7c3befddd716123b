//! The threads that programs run on.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock, Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Pools by process and number of threads; `None` where there were no threads to be had.
type Pools = HashMap<(u32, usize), Option<Arc<ThreadPool>>>;

/// One pool for each number of threads that was asked for: usually one. A process that was forked has
/// none of its parent's threads, so that pools are each process's own.
static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);

/// The most threads that may be asked for.
pub const MOST_THREADS: usize = 65536;

/// A number of threads as a user writes it. `None` if it is no number from 1 to [`MOST_THREADS`].
pub fn parse_threads(text: &str) -> Option<usize> {
    let threads = text.trim().parse().ok()?;
    (1..=MOST_THREADS).contains(&threads).then_some(threads)
}

/// What `CORSAC_NUM_THREADS` says: `None` if it is not set, or empty.
///
/// # Errors
/// What is wrong, if that is no number of threads.
pub fn threads_setting() -> Result<Option<usize>, String> {
    let Some(text) = std::env::var_os("CORSAC_NUM_THREADS") else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    match text.trim().is_empty() {
        true => Ok(None),
        false => parse_threads(&text).map(Some).ok_or_else(|| {
            format!(
                "CORSAC_NUM_THREADS is {text:?}, and a number from 1 to {MOST_THREADS} is needed"
            )
        }),
    }
}

/// How many threads the user wants: [`threads_setting`], where it is one.
pub fn chosen_threads() -> Option<usize> {
    threads_setting().ok().flatten()
}

/// How many threads take part where nobody says it: [`chosen_threads`], or as many as the process may
/// use cores.
pub fn default_threads() -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    chosen_threads().unwrap_or_else(cores)
}

/// Does `work` on this many threads. Threads that wait sleep; all programs of a process share them. What runs a
/// program elsewhere, on a thread of no pool, has that thread alone.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = POOLS.lock().ok().and_then(|mut pools| {
        let own = (std::process::id(), threads);
        let pool = pools.entry(own).or_insert_with(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads);
            let builder = builder.thread_name(|number| format!("corsac-{number}"));
            let processors = processors::one_for_each(threads);
            let builder = builder.start_handler(move |number| {
                if let Some(&processor) = processors.get(number) {
                    processors::stay_on(processor);
                }
            });
            builder.build().ok().map(Arc::new)
        });
        pool.clone()
    });
    match pool {
        Some(pool) => pool.install(work),
        // No threads are to be had: on the one that there is.
        None => work(),
    }
}

/// Threads that stay where they are.
///
/// After a tenth of a second without calls, Linux woke both of two threads on one processor, and moved one of them
/// only some 10 ms later: a call of DenseNet-121 took 25 ms instead of 18.
#[cfg(target_os = "linux")]
mod processors {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// A processor for each of as many threads as the process may use processors. None if there are more or
    /// fewer: which of them are free is for the kernel to know. None if `CORSAC_PIN_THREADS` is 0.
    pub(super) fn one_for_each(threads: usize) -> Vec<usize> {
        let wanted =
            std::env::var("CORSAC_PIN_THREADS").map_or(true, |chosen| chosen.trim() != "0");
        let Some(allowed) = sched_getaffinity(None)
            .ok()
            .filter(|_| wanted && threads > 1)
        else {
            return Vec::new();
        };
        let allowed = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let allowed: Vec<usize> = allowed.collect();
        match allowed.len() == threads {
            true => allowed,
            false => Vec::new(),
        }
    }

    /// Keeps the calling thread on `processor`. Where that is refused, it goes where the kernel wants.
    pub(super) fn stay_on(processor: usize) {
        let mut only = CpuSet::new();
        only.set(processor);
        let _ = sched_setaffinity(None, &only);
    }
}

#[cfg(not(target_os = "linux"))]
mod processors {
    pub(super) fn one_for_each(_threads: usize) -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn stay_on(_processor: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::thread_count;

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_stay_on_processors_of_their_own_if_there_are_as_many() {
        use rustix::thread::{CpuSet, sched_getaffinity};
        let allowed = |set: &CpuSet| -> Vec<usize> {
            (0..CpuSet::MAX_CPU).filter(|&at| set.is_set(at)).collect()
        };
        let all = allowed(&sched_getaffinity(None).unwrap());
        let of_threads = |threads: usize| {
            on_threads(threads, || {
                rayon::broadcast(|_| allowed(&sched_getaffinity(None).unwrap()))
            })
        };
        if all.len() > 1 {
            let own: Vec<Vec<usize>> = all.iter().map(|&processor| vec![processor]).collect();
            assert_eq!(of_threads(all.len()), own);
        }
        for threads in [1, all.len() + 1] {
            assert_eq!(of_threads(threads), vec![all.clone(); threads]);
        }
        // The caller may go where it could before.
        assert_eq!(allowed(&sched_getaffinity(None).unwrap()), all);
    }

    #[test]
    fn numbers_of_threads_are_read() {
        let cases = [
            ("1", Some(1)),
            (" 8 ", Some(8)),
            ("65536", Some(65536)),
            ("65537", None),
            ("0", None),
            ("-1", None),
            ("abc", None),
            ("", None),
        ];
        for (text, threads) in cases {
            assert_eq!(parse_threads(text), threads, "{text}");
        }
    }

    #[test]
    fn work_is_done_on_as_many_threads_as_were_asked_for() {
        for threads in [1, 3, 1] {
            assert_eq!(on_threads(threads, thread_count), threads);
        }
    }
}
