//! Thread pools that programs run on.

mod pools;

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

/// Largest number of threads that is accepted.
pub const MOST_THREADS: usize = 65536;

/// Parses a number of threads. `None` if it is no number from 1 to [`MOST_THREADS`].
pub fn parse_threads(text: &str) -> Option<usize> {
    let threads = text.trim().parse().ok()?;
    (1..=MOST_THREADS).contains(&threads).then_some(threads)
}

/// The value of `CORSAC_NUM_THREADS`; `None` if it is not set, or empty.
///
/// # Errors
/// A description of the fault, if the value is no number of threads.
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

/// Number of threads that the user has set: [`threads_setting`], where it is valid.
pub fn chosen_threads() -> Option<usize> {
    threads_setting().ok().flatten()
}

/// Number of threads of a run by default: [`chosen_threads`], or the number of cores that the
/// process may use.
pub fn default_threads() -> usize {
    chosen_threads().unwrap_or_else(cores)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Runs `work` on a pool of this many threads, which all programs of a process share and whose idle
/// threads sleep. Work for one thread does not wait for that of other callers. A program that is run on a
/// thread of no pool uses that thread alone.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    // WebAssembly has neither threads nor numbers of processes.
    let alone = cfg!(target_family = "wasm") || threads == 1 && callers::is_alone();
    match (alone, threads) {
        (true, _) => work(),
        (false, 1) => pools::on_idle(work),
        (false, _) => pools::on_shared(threads, work),
    }
}

/// Lets callers of [`on_threads`] do the work for one thread themselves, from now on and in the whole
/// process, so that they need not wake another thread, and find in their caches what they have just
/// written.
///
/// rten-gemm works in pools of rayon only. Each such caller therefore becomes a pool of its own, and
/// rayon's functions use that thread alone when it calls them: this is for processes in which nothing
/// else uses this rayon. Nor is it for those of C, whose leak checkers find what is kept of threads that have ended.
pub fn let_callers_work() {
    callers::LET.store(true, Ordering::Relaxed);
}

/// Threads of callers that are pools of their own.
mod callers {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rayon::ThreadPoolBuilder;

    pub(super) static LET: AtomicBool = AtomicBool::new(false);

    /// What rayon keeps for such a thread, some 5 KB, is not freed when it ends. Those after the first
    /// ones have other threads do their work.
    const MOST: usize = 1024;
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    /// Whether the calling thread is the only one of its pool, which it becomes if it may.
    pub(super) fn is_alone() -> bool {
        if rayon::current_thread_index().is_some() {
            return crate::parallel::thread_count() == 1;
        }
        if !LET.load(Ordering::Relaxed) || TAKEN.fetch_add(1, Ordering::Relaxed) >= MOST {
            return false;
        }
        let builder = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        // The thread belongs to its pool for ever.
        builder.build().map(std::mem::forget).is_ok()
    }
}

/// Pinning of threads to processors.
///
/// After a tenth of a second without calls, Linux woke both of two threads on one processor, and
/// moved one of them only some 10 ms later: a call of DenseNet-121 took 25 ms instead of 18.
#[cfg(target_os = "linux")]
mod processors {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// A processor for each thread, if there are as many threads as processors that the process may
    /// use; otherwise none, since the kernel knows better which are free. None if
    /// `CORSAC_PIN_THREADS` is 0.
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

    /// Pins the calling thread to `processor`. If that is refused, the kernel places it.
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
    use crate::parallel::thread_count;

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
        // The calling thread is not pinned.
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
    fn callers_do_the_work_for_one_thread_if_they_may() {
        use std::thread;
        let own_work = || {
            let own = thread::current().id();
            let alone = on_threads(1, || (thread::current().id() == own, thread_count()));
            // Work for several threads still has them, and comes back.
            let others = on_threads(3, || (thread::current().id() == own, thread_count()));
            (alone, others, on_threads(1, thread_count))
        };
        let on_another = || thread::spawn(own_work).join().unwrap();
        assert_eq!(on_another(), ((false, 1), (false, 3), 1));
        let_callers_work();
        for _ in 0..3 {
            assert_eq!(on_another(), ((true, 1), (false, 3), 1));
        }
        // Within a pool, work for one thread is done by that of another pool.
        assert_eq!(on_threads(3, || on_threads(1, thread_count)), 1);
    }

    #[test]
    fn callers_for_one_thread_do_not_wait_for_each_other() {
        use std::sync::Barrier;
        use std::thread;
        let callers = 2 * cores();
        for _ in 0..3 {
            // Each caller's work ends when that of all has begun.
            let all = Barrier::new(callers);
            let work = || on_threads(1, || (all.wait(), thread_count()).1);
            let counts: Vec<usize> = thread::scope(|scope| {
                let callers: Vec<_> = (0..callers).map(|_| scope.spawn(work)).collect();
                let counts = callers.into_iter().map(|caller| caller.join().unwrap());
                counts.collect()
            });
            assert_eq!(counts, vec![1; callers]);
        }
        assert!(pools::idle() <= cores());
    }

    #[test]
    fn work_is_done_on_as_many_threads_as_were_asked_for() {
        for threads in [1, 3, 1] {
            assert_eq!(on_threads(threads, thread_count), threads);
        }
    }
}
