//! Scattering: numbers combined with those at given places.

/// `to[places[i]] = combine(to[places[i]], from[i])`, in order; returns whether all places are in
/// bounds. If not, nothing is written.
#[must_use]
pub fn scatter<T: Copy>(
    from: &[T],
    places: &[i64],
    to: &mut [T],
    combine: impl Fn(T, T) -> T,
) -> bool {
    if !are_inside(places, to.len()) {
        return false;
    }
    for (&place, &x) in places.iter().zip(from) {
        debug_assert!(usize::try_from(place).is_ok_and(|place| place < to.len()));
        // SAFETY: all places have been checked to be in bounds.
        let own = unsafe { to.get_unchecked_mut(place as usize) };
        *own = combine(*own, x);
    }
    true
}

/// Whether all indices are in `0..size`; all are checked, several at a time.
#[must_use]
pub fn are_inside(indices: &[i64], size: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has these instructions.
        return unsafe { x86_64::are_inside(indices, size) };
    }
    all(indices, size)
}

#[inline(always)]
fn all(indices: &[i64], size: usize) -> bool {
    let is_inside = |inside, index: &i64| inside & (index.cast_unsigned() < size as u64);
    indices.iter().fold(true, is_inside)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    /// The same with vector instructions.
    ///
    /// # Safety
    /// The processor must have the instructions.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn are_inside(indices: &[i64], size: usize) -> bool {
        super::all(indices, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_combined_in_order() {
        let mut to = [1.0, 2.0, 3.0];
        assert!(scatter(&[0.5, 0.25, 8.0], &[2, 2, 0], &mut to, |a, b| a - 2.0 * b));
        assert_eq!(to, [-15.0, 2.0, 1.5]);
        assert!(scatter(&[7.0, 9.0], &[1, 1], &mut to, |_, b| b));
        assert_eq!(to, [-15.0, 9.0, 1.5]);
        assert!(scatter(&[], &[], &mut [0_i64; 0], |a, b| a + b));
    }

    #[test]
    fn nothing_is_written_where_a_place_is_not_there() {
        for wrong in [-1, 3, i64::MIN, i64::MAX] {
            for at in 0..20 {
                let mut places = [1; 20];
                places[at] = wrong;
                let mut to = [1, 2, 3];
                assert!(
                    !scatter(&[5; 20], &places, &mut to, |a, b| a + b),
                    "{wrong} at {at}"
                );
                assert_eq!(to, [1, 2, 3]);
            }
        }
    }
}
