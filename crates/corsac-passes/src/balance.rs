//! Balanced cuts of a program into parts that run one after the other.
//!
//! A [`Chain`] has the calls of a program in order, each with its time, and for each border between
//! two calls the bytes that cross it. [`balance`] cuts it into a number of parts so that the slowest
//! takes as little time as possible, where the time of a part is that of its calls and that of
//! receiving and sending what crosses its two borders, and no part needs more memory than there is.
//! Of all such cuts it returns one with the least traffic: results do not depend on chance.
//!
//! **Time.** Let `W[b]` be the work before border `b` and `t[b]` the time that what crosses it takes.
//! The part from `i` to `j` takes at most `T` if and only if `W[j] + t[j] - T <= W[i] - t[i]`, so
//! that the borders where `k` parts can end follow from those where `k - 1` can by the maximum of
//! `W[i] - t[i]` over a window that slides. Its left end is where memory ends: a part that has more
//! calls needs no less memory. The least `T` is found by bisection; a `T` that is too small also
//! yields the least one above it that changes anything. Times are integers meanwhile, so that the
//! result is exact. Each step takes time in proportion to the borders that are no further from where
//! a perfect cut would have them than `T` allows: together a few times the number of calls.
//!
//! **Memory.** A part needs its weights, each once, and for inference the most activations that are
//! alive at once. For [`Training`], the parameters that are trained need gradients and the state of
//! the optimizer, and all activations that the part computes or receives are kept for each
//! microbatch in flight: of `n` parts, part `k` (from 0) has `n - k` of them under the schedule
//! 1F1B.
//!
//! Needs: nothing; [`Chain::of_graph`] makes a chain of a graph whose types are known.
//!
//! Sources: D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training",
//! SOSP 2019, for the cost of a stage and the schedule 1F1B; A. Pinar, C. Aykanat, "Fast optimal
//! load balancing algorithms for 1D partitioning", 2004, for the search.
//!
//! ```
//! use corsac_passes::balance::{Chain, Request, balance};
//!
//! let chain = Chain::of_work(&[3.0, 1.0, 2.0, 2.0, 4.0]);
//! let cut = balance(&chain, &Request::parts(3)).unwrap();
//! assert_eq!(cut.borders, [2, 4]);
//! assert_eq!(cut.seconds, [4.0, 4.0, 4.0]);
//! ```

mod chain;
mod memory;
mod search;
#[cfg(test)]
mod tests;

use std::ops::Range;

use thiserror::Error;

pub use chain::{Crossing, Facts};
use memory::Memory;
use search::Search;

/// A program as a sequence of calls. Borders are numbered by the call that they lie before; the
/// last one is the end.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The time of each call, in seconds.
    pub work: Vec<f64>,
    /// Bytes of the values that cross each border; none at both ends.
    pub crossing: Vec<u64>,
    /// Whether a part may end at each border.
    pub may_end: Vec<bool>,
    /// The weights that each call uses, by index.
    pub weights: Vec<Vec<u32>>,
    /// The sizes of all weights.
    pub sizes: Vec<WeightBytes>,
    /// The blocks of memory that hold activations.
    pub buffers: Vec<Buffer>,
}

/// The size of a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightBytes {
    /// All of it.
    pub bytes: u64,
    /// The same if it is trained, and otherwise 0.
    pub trained: u64,
}

/// A block of memory that holds activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its size.
    pub bytes: u64,
    /// The call that makes it, or the first that uses it if it is an input.
    pub first: usize,
    /// The last call that uses it; the number of calls if it is a result.
    pub last: usize,
}

/// The parts that are wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of parts.
    pub parts: usize,
    /// Memory for each part, in bytes; unlimited if `None`.
    pub memory: Option<u64>,
    /// Bytes per second that cross a border; sending takes no time if `None`.
    pub bandwidth: Option<f64>,
    /// The training that memory is needed for; `None` for inference.
    pub training: Option<Training>,
}

/// What training needs memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Tensors of the size of each trained parameter that the optimizer keeps: 0 for SGD, 1 with
    /// momentum, 2 for Adam.
    pub states: u64,
    /// Number of microbatches; at most so many are in flight.
    pub microbatches: u64,
}

impl Request {
    /// A number of parts, without a bound on memory, for inference.
    #[must_use]
    pub fn parts(parts: usize) -> Self {
        Self {
            parts,
            memory: None,
            bandwidth: None,
            training: None,
        }
    }
}

/// A cut of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cut {
    /// The borders between parts: the first call of each part but the first.
    pub borders: Vec<usize>,
    /// The time of each part, in seconds.
    pub seconds: Vec<f64>,
    /// The memory of each part, in bytes.
    pub memory: Vec<u64>,
}

/// The reason why a chain cannot be cut as requested.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum BalanceError {
    /// There are not as many places where a part may end.
    #[error("expected at most {possible} parts, got {parts}")]
    TooManyParts {
        /// The most that are possible.
        possible: usize,
        /// The number requested.
        parts: usize,
    },
    /// Calls that no border may part need more memory than there is.
    #[error(
        "calls {calls:?} need {needed} bytes, expected at most {memory}; the least bound is {least}"
    )]
    CallTooLarge {
        /// The calls.
        calls: Range<usize>,
        /// The bytes that they need.
        needed: u64,
        /// The bound, in bytes.
        memory: u64,
        /// The least bound with which the program can be cut.
        least: u64,
    },
    /// Each call fits, but not all of them in so many parts.
    #[error("{parts} parts need more than {memory} bytes each; the least bound is {least}")]
    TooLittleMemory {
        /// The number of parts.
        parts: usize,
        /// The bound, in bytes.
        memory: u64,
        /// The least bound with which the program can be cut.
        least: u64,
    },
    /// A time is no finite number of at least 0.
    #[error("call {call} takes {seconds} seconds, expected a finite number of at least 0")]
    Time {
        /// The call.
        call: usize,
        /// Its time.
        seconds: f64,
    },
    /// The bandwidth is no finite number above 0.
    #[error("a bandwidth of {0} bytes per second, expected a finite number above 0")]
    Bandwidth(f64),
}

impl Chain {
    /// Calls that take times, without weights and values, and with a border between any two.
    #[must_use]
    pub fn of_work(seconds: &[f64]) -> Self {
        Self {
            work: seconds.to_vec(),
            crossing: vec![0; seconds.len() + 1],
            may_end: vec![true; seconds.len() + 1],
            weights: vec![Vec::new(); seconds.len()],
            ..Self::default()
        }
    }

    /// The borders where parts may end, both ends of the chain included.
    fn borders(&self) -> Vec<usize> {
        let inner = (1..self.work.len()).filter(|&border| self.may_end[border]);
        std::iter::once(0)
            .chain(inner)
            .chain((!self.work.is_empty()).then_some(self.work.len()))
            .collect()
    }
}

/// Cuts `chain` into parts of which the slowest is as fast as possible, with the least traffic.
///
/// # Errors
/// [`BalanceError::TooManyParts`] if there are too few borders,
/// [`CallTooLarge`](BalanceError::CallTooLarge) or
/// [`TooLittleMemory`](BalanceError::TooLittleMemory) if memory does not suffice,
/// [`Time`](BalanceError::Time) or [`Bandwidth`](BalanceError::Bandwidth) for a number that is none.
pub fn balance(chain: &Chain, request: &Request) -> Result<Cut, BalanceError> {
    if let Some(call) = (chain.work.iter()).position(|own| !own.is_finite() || *own < 0.0) {
        let seconds = chain.work[call];
        return Err(BalanceError::Time { call, seconds });
    }
    if let Some(wrong) = request
        .bandwidth
        .filter(|own| !own.is_finite() || *own <= 0.0)
    {
        return Err(BalanceError::Bandwidth(wrong));
    }
    let bandwidth = request.bandwidth.unwrap_or(f64::INFINITY);
    let borders = chain.borders();
    let possible = borders.len() - 1;
    let parts = request.parts;
    if parts == 0 || parts > possible {
        return Err(BalanceError::TooManyParts { possible, parts });
    }
    let memory = Memory::of(chain, &borders, request);
    let search = Search::of(chain, &borders, bandwidth, parts);
    let starts = match request.memory {
        None => memory.unlimited(),
        Some(bound) => memory.starts(bound),
    };
    let Some(ends) = search.fastest(&starts) else {
        return Err(too_little(&memory, &search, request));
    };
    let mut cut = Cut::default();
    for (part, end) in ends.windows(2).enumerate() {
        let (first, last) = (borders[end[0]], borders[end[1]]);
        let sent = (chain.crossing[first] + chain.crossing[last]) as f64 / bandwidth;
        cut.seconds
            .push(chain.work[first..last].iter().sum::<f64>() + sent);
        cut.memory.push(memory.of_part(part, end[0]..end[1]));
        cut.borders.extend((part > 0).then_some(first));
    }
    Ok(cut)
}

/// The error for a bound on memory that is too small.
fn too_little(memory: &Memory<'_>, search: &Search, request: &Request) -> BalanceError {
    let bound = request.memory.unwrap_or(u64::MAX);
    let (mut low, mut high) = (bound.saturating_add(1), memory.most());
    while low < high {
        let middle = low + (high - low) / 2;
        match search.is_possible(&memory.starts(middle)) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    let least = high;
    match memory.largest() {
        (calls, needed) if needed > bound => BalanceError::CallTooLarge {
            calls,
            needed,
            memory: bound,
            least,
        },
        _ => BalanceError::TooLittleMemory {
            parts: request.parts,
            memory: bound,
            least,
        },
    }
}
