//! What was made for sets of sizes, up to a number of them.

use std::sync::{Arc, Mutex, PoisonError};

use super::signature::SizeValues;

/// What was made for one set of sizes; empty while the first thread that needs it makes it.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// Values by sizes, of which the least recently used one is dropped when there are too many. Threads that
/// need the same sizes wait for the first of them; those with other sizes do not.
#[derive(Debug)]
pub struct SizeCache<T> {
    /// The most recently used one is last.
    slots: Mutex<Vec<(SizeValues, Slot<T>)>>,
    most: usize,
}

impl<T: Clone> SizeCache<T> {
    /// An empty cache for `most` sets of sizes, at least one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            slots: Mutex::default(),
            most: most.max(1),
        }
    }

    /// Number of sets of sizes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was made for `sizes`, or else what `make` makes.
    ///
    /// # Errors
    /// Those of `make`: nothing is kept then.
    pub fn get_or_make<E>(
        &self,
        sizes: &[usize],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let slot = self.slot(sizes);
        // A thread that panicked has made nothing.
        let mut own = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*own {
            return Ok(known.clone());
        }
        match make() {
            Ok(made) => {
                *own = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                self.remove(&slot);
                Err(error)
            }
        }
    }

    fn slot(&self, sizes: &[usize]) -> Slot<T> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slots.iter().rposition(|(own, _)| **own == *sizes);
        let entry = match known {
            Some(at) if at + 1 == slots.len() => return Arc::clone(&slots[at].1),
            Some(at) => slots.remove(at),
            None => (SizeValues::from_slice(sizes), Slot::default()),
        };
        let slot = Arc::clone(&entry.1);
        slots.push(entry);
        if slots.len() > self.most {
            slots.remove(0);
        }
        slot
    }

    fn remove(&self, slot: &Slot<T>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(_, own)| !Arc::ptr_eq(own, slot));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn made(cache: &SizeCache<usize>, size: usize) -> bool {
        let mut is_new = false;
        let value = cache.get_or_make(&[size], || {
            is_new = true;
            Ok::<_, ()>(size * 10)
        });
        assert_eq!(value, Ok(size * 10));
        is_new
    }

    #[test]
    fn the_least_recently_used_sizes_are_dropped() {
        let cache = SizeCache::new(2);
        assert!(made(&cache, 1) && made(&cache, 2) && !made(&cache, 1));
        assert!(made(&cache, 3) && !made(&cache, 1) && made(&cache, 2));
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn nothing_is_kept_of_an_error() {
        let cache = SizeCache::new(2);
        assert_eq!(cache.get_or_make(&[1], || Err("no")), Err("no"));
        assert!(cache.is_empty());
        assert!(made(&cache, 1));
    }

    #[test]
    fn threads_with_the_same_sizes_make_one_value() {
        let cache = SizeCache::new(4);
        let (count, barrier) = (AtomicUsize::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let make = || Ok::<_, ()>(count.fetch_add(1, Ordering::SeqCst));
                    assert_eq!(cache.get_or_make(&[7], make), Ok(0));
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
    }

    #[test]
    fn threads_with_other_sizes_do_not_wait() {
        let cache = SizeCache::new(4);
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for size in 0..2 {
                let (cache, both) = (&cache, &both);
                // Each makes its value only while the other one does.
                scope.spawn(move || {
                    let make = || {
                        both.wait();
                        Ok::<_, ()>(size)
                    };
                    assert_eq!(cache.get_or_make(&[size], make), Ok(size));
                });
            }
        });
    }
}
