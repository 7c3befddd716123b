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

/// How many threads the user wants: `CORSAC_NUM_THREADS`, where it is a number above zero.
pub fn chosen_threads() -> Option<usize> {
    let wanted = std::env::var("CORSAC_NUM_THREADS").ok()?;
    wanted.trim().parse().ok().filter(|&threads| threads > 0)
}

/// How many threads take part where nobody says it: [`chosen_threads`], or as many as the process may
/// use cores.
pub fn default_threads() -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    chosen_threads().unwrap_or_else(cores)
}

/// Does `work` on this many threads. Threads that wait sleep; all programs of a process share them.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = POOLS.lock().ok().and_then(|mut pools| {
        let own = (std::process::id(), threads);
        let pool = pools.entry(own).or_insert_with(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads);
            let named = builder.thread_name(|number| format!("corsac-{number}"));
            named.build().ok().map(Arc::new)
        });
        pool.clone()
    });
    match pool {
        Some(pool) => pool.install(work),
        // No threads are to be had: on those that there are.
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_as_many_threads_as_were_asked_for() {
        for threads in [1, 3, 1] {
            assert_eq!(on_threads(threads, rayon::current_num_threads), threads);
        }
    }
}
