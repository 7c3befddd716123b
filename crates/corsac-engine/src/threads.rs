//! The threads that programs run on.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// One pool for each number of threads that was asked for: usually one.
static POOLS: LazyLock<Mutex<HashMap<usize, Option<Arc<ThreadPool>>>>> =
    LazyLock::new(Mutex::default);

/// Does `work` on this many threads. Threads that wait sleep; all programs of a process share them.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = POOLS.lock().ok().and_then(|mut pools| {
        let pool = pools.entry(threads).or_insert_with(|| {
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
