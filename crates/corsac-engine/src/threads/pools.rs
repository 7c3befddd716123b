//! Pools of threads, which the programs of a process share.
//!
//! A forked process has none of the threads of its parent, so that each process has its own pools.

use std::collections::HashMap;
use std::process::id;
use std::sync::{Arc, LazyLock, Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{cores, processors};

/// Pools by process and number of threads, one for each number in use, usually one; `None` where the threads
/// could not be started.
type Shared = HashMap<(u32, usize), Option<Arc<ThreadPool>>>;

static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// Pools of one thread that are not in use, by process: [`MOST_IDLE`] at most.
static IDLE: LazyLock<Mutex<HashMap<u32, Vec<ThreadPool>>>> = LazyLock::new(Mutex::default);

/// As many as run at once. To ask for it takes longer than many programs run.
static MOST_IDLE: LazyLock<usize> = LazyLock::new(cores);

/// Runs `work` on the pool of this many threads, or on the calling thread if they cannot be started.
pub(super) fn on_shared<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = SHARED.lock().ok().and_then(|mut pools| {
        let own = pools.entry((id(), threads));
        own.or_insert_with(|| started(threads).map(Arc::new))
            .clone()
    });
    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Runs `work` on a pool of one thread that nothing else uses, or on the calling thread if none can be started.
pub(super) fn on_idle<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let idle = IDLE.lock().ok();
    let idle = idle.and_then(|mut pools| pools.get_mut(&id())?.pop());
    let Some(pool) = idle.or_else(|| started(1)) else {
        return work();
    };
    // A panic of the work ends the pool.
    let result = pool.install(work);
    if let Ok(mut pools) = IDLE.lock() {
        let idle = pools.entry(id()).or_default();
        if idle.len() < *MOST_IDLE {
            idle.push(pool);
        }
    }
    result
}

/// Number of pools of one thread that are not in use.
#[cfg(test)]
pub(super) fn idle() -> usize {
    IDLE.lock().unwrap().get(&id()).map_or(0, Vec::len)
}

/// A new pool of this many threads; none if they cannot be started.
fn started(threads: usize) -> Option<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    let builder = builder.thread_name(|number| format!("corsac-{number}"));
    let processors = processors::one_for_each(threads);
    let builder = builder.start_handler(move |number| {
        if let Some(&processor) = processors.get(number) {
            processors::stay_on(processor);
        }
    });
    builder.build().ok()
}
