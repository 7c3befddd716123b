//! Gathering numbers from places that are known only when the program runs ([`gather`]), or in
//! advance ([`Places`]).

/// `to[i] = from[places[i]]`; returns whether all places are in bounds. If not, the numbers written
/// are unspecified.
///
/// # Panics
/// If `places` and `to` differ in length.
#[must_use]
pub fn gather(from: &[f32], places: &[i64], to: &mut [f32]) -> bool {
    assert_eq!(places.len(), to.len(), "a place for each");
    #[cfg(target_arch = "x86_64")]
    if i32::try_from(from.len()).is_ok() && is_x86_feature_detected!("avx512f") {
        let (places, last_places) = places.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has these instructions, and places fit 32 bits.
        let whole = unsafe { x86_64::vectors(from, places, to) };
        return one_by_one(from, last_places, last) && whole;
    }
    one_by_one(from, places, to)
}

fn one_by_one(from: &[f32], places: &[i64], to: &mut [f32]) -> bool {
    for (to, &place) in to.iter_mut().zip(places) {
        match usize::try_from(place).ok().and_then(|at| from.get(at)) {
            Some(&x) => *to = x,
            None => return false,
        }
    }
    true
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm512_castsi256_si512, _mm512_cmplt_epu64_mask, _mm512_cvtepi64_epi32, _mm512_inserti64x4,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_i32gather_ps, _mm512_permutexvar_ps,
        _mm512_set1_epi64, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{LANES, Places, Run};

    /// [`Places::read_rows`] with vector instructions.
    ///
    /// # Safety
    /// The processor must have the instructions.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn rows(places: &Places, from: &[f32], rows: &[u32], to: &mut [f32]) {
        for (to, &row) in to.chunks_exact_mut(places.places.len()).zip(rows) {
            let from = &from[row as usize * places.len..][..places.len];
            let (whole, rest) = to.as_chunks_mut::<LANES>();
            let first = whole.len() * LANES;
            for (number, (to, run)) in whole.iter_mut().zip(&places.runs).enumerate() {
                match run {
                    Run::Near(start, lanes) => {
                        debug_assert!(*start as usize + LANES <= from.len());
                        // SAFETY: `Places::new` has checked that rows of `len` numbers have sixteen
                        // from `start` on; sixteen lanes are read, and sixteen numbers are written.
                        unsafe {
                            let own = _mm512_loadu_ps(from.as_ptr().add(*start as usize));
                            let lanes = _mm512_loadu_si512(lanes.as_ptr().cast());
                            _mm512_storeu_ps(to.as_mut_ptr(), _mm512_permutexvar_ps(lanes, own));
                        }
                    }
                    Run::Far => places.read(number * LANES, from, to),
                }
            }
            places.read(first, from, rest);
        }
    }

    /// Gathers sixteen numbers at a time.
    ///
    /// # Safety
    /// The processor must have the instructions, and `from` fewer than 2^31 numbers.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn vectors(from: &[f32], places: &[[i64; 16]], to: &mut [[f32; 16]]) -> bool {
        let len = _mm512_set1_epi64(from.len() as i64);
        let mut all = u16::MAX;
        for (to, places) in to.iter_mut().zip(places) {
            // SAFETY: there are sixteen places to read, and sixteen numbers to write; numbers are
            // read only where places are within the slice.
            unsafe {
                let low = _mm512_loadu_si512(places.as_ptr().cast());
                let high = _mm512_loadu_si512(places.as_ptr().add(8).cast());
                let inside = u16::from(_mm512_cmplt_epu64_mask(low, len))
                    | u16::from(_mm512_cmplt_epu64_mask(high, len)) << 8;
                all &= inside;
                let low = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low));
                let short = _mm512_inserti64x4::<1>(low, _mm512_cvtepi64_epi32(high));
                let none = _mm512_setzero_ps();
                let found =
                    _mm512_mask_i32gather_ps::<4>(none, inside, short, from.as_ptr().cast());
                _mm512_storeu_ps(to.as_mut_ptr(), found);
            }
        }
        all == u16::MAX
    }
}

/// Numbers that are gathered at a time.
const LANES: usize = 16;

/// Places to gather from in each of many rows, analysed in advance.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Length of the rows that are read.
    len: usize,
    places: Vec<u32>,
    /// One for each sixteen places.
    runs: Vec<Run>,
}

/// Whether sixteen places lie close together.
#[derive(Clone, Debug, PartialEq)]
enum Run {
    /// All are among sixteen numbers that a row has from this one on, at these offsets.
    Near(u32, [u32; LANES]),
    /// They are further apart.
    Far,
}

impl Places {
    /// Places in rows of `len` numbers.
    ///
    /// # Panics
    /// If a place is out of bounds.
    #[must_use]
    pub fn new(len: usize, places: Vec<u32>) -> Self {
        assert!(
            places.iter().all(|&at| (at as usize) < len),
            "all are there"
        );
        let (whole, _) = places.as_chunks::<LANES>();
        let run = |own: &[u32; LANES]| {
            let (mut first, mut last) = (own[0], own[0]);
            for &at in own {
                (first, last) = (first.min(at), last.max(at));
            }
            // At most the start of the last sixteen.
            let start = (first as usize).min(len.saturating_sub(LANES)) as u32;
            match len >= LANES && last - start < LANES as u32 {
                true => Run::Near(start, own.map(|at| at - start)),
                false => Run::Far,
            }
        };
        let runs = whole.iter().map(run).collect();
        Self { len, places, runs }
    }

    /// Number of places.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// `to[i][j] = from[rows[i]][places[j]]`
    ///
    /// # Panics
    /// If a row is out of bounds, or `to` has another length.
    pub fn read_rows(&self, from: &[f32], rows: &[u32], to: &mut [f32]) {
        assert_eq!(to.len(), rows.len() * self.places.len(), "all are wanted");
        if to.is_empty() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has these instructions.
            return unsafe { x86_64::rows(self, from, rows, to) };
        }
        for (to, &row) in to.chunks_exact_mut(self.places.len()).zip(rows) {
            let from = &from[row as usize * self.len..][..self.len];
            self.read(0, from, to);
        }
    }

    /// Reads the places from number `first` on, one by one.
    #[inline(always)]
    fn read(&self, first: usize, from: &[f32], to: &mut [f32]) {
        for (to, &at) in to.iter_mut().zip(&self.places[first..]) {
            *to = from[at as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, gather};

    #[test]
    fn numbers_are_those_of_their_places() {
        let from: Vec<f32> = (0..77_u8).map(f32::from).collect();
        for count in [0, 1, 16, 50] {
            let places: Vec<i64> = (0..count).map(|at| at * 29 % 77).collect();
            let mut to = vec![-1.0; places.len()];
            assert!(gather(&from, &places, &mut to));
            for (&place, &x) in places.iter().zip(&to) {
                assert_eq!(x, place as f32);
            }
        }
    }

    #[test]
    fn nothing_is_read_outside() {
        for count in [3, 16, 40] {
            for at in [0, 2, count - 1] {
                for place in [77, -1, i64::MAX, i64::MIN, 1 << 32] {
                    let mut places = vec![5; count];
                    places[at] = place;
                    assert!(!gather(&[0.0; 77], &places, &mut vec![0.0; count]));
                }
            }
        }
    }

    #[test]
    fn rows_of_places_are_those_of_each() {
        let len = 41;
        let from: Vec<f32> = (0..3 * len).map(|at| at as f32).collect();
        let orders: [&dyn Fn(u32) -> u32; 5] = [
            &|at| at % 41,
            &|at| at * 2 / 3 % 41,
            &|at| 40 - at % 41,
            &|at| (at + 38) % 41,
            &|at| at * 29 % 41,
        ];
        for own in [len, 20, 7] {
            for order in orders {
                for count in [0, 5, 16, 60] {
                    let list: Vec<u32> = (0..count).map(|at| order(at) % own as u32).collect();
                    let places = Places::new(own, list.clone());
                    let mut to = vec![-1.0; 2 * list.len()];
                    places.read_rows(&from, &[2, 0], &mut to);
                    let row =
                        |row: usize| list.iter().map(move |&at| (row * own) as f32 + at as f32);
                    assert_eq!(to, row(2).chain(row(0)).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    #[should_panic = "all are there"]
    fn places_are_looked_at() {
        let _ = Places::new(20, vec![3, 20]);
    }

    #[test]
    #[should_panic = "out of range"]
    fn rows_are_looked_at() {
        Places::new(20, vec![3; 16]).read_rows(&[0.0; 40], &[2], &mut [0.0; 16]);
    }
}
