//! Options of loading.

use corsac_engine::{Limits, MOST_THREADS};

use crate::error::Error;

/// Options of loading a model. Set `size` to `sizeof(corsac_options)`; all else may be 0, which
/// stands for the default: `corsac_options options = {.size = sizeof options, .threads = 2};`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `sizeof(corsac_options)`: later versions may add members to the end.
    pub size: usize,
    /// Threads of a run. By default the value of the environment variable CORSAC_NUM_THREADS, or
    /// the number of cores.
    pub threads: usize,
    /// Limit of the bytes of the header. By default 32 MiB.
    pub limit_header_bytes: u64,
    /// Limit of the nodes of the graph. By default 100,000.
    pub limit_nodes: u64,
    /// Limit of the bytes of all weights. By default 64 GiB.
    pub limit_weight_bytes: u64,
    /// Limit of the bytes of any value, and of all that are held at once. By default 8 GiB.
    pub limit_value_bytes: u64,
    /// Limit of the iterations of the loops of a call. By default 10,000,000.
    pub limit_iterations: u64,
}

/// More bytes than options of any version have.
const MOST_BYTES: usize = 4096;

/// Options that begin with their size in bytes; the defaults if `pointer` is null.
///
/// # Safety
/// `T` is a structure of C that begins with its size, and whose members take any bytes. `pointer` is null, or points to
/// as many bytes as the structure there says.
pub(crate) unsafe fn sized<T: Copy + Default>(pointer: *const T) -> Result<T, Error> {
    let own = size_of::<T>();
    let wrong = |reason: String| Err(Error::Options { reason });
    if pointer.is_null() {
        return Ok(T::default());
    }
    // SAFETY: all versions begin with their size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(size_of::<usize>()..=MOST_BYTES).contains(&size) {
        return wrong(format!("size is {size}, and {own} is needed"));
    }
    // SAFETY: there are as many bytes as the structure says.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    if bytes.iter().skip(own).any(|&byte| byte != 0) {
        return wrong(format!("{size} bytes, of which this version knows {own}"));
    }
    let mut options = T::default();
    // SAFETY: both have these bytes, and members take any.
    unsafe {
        let to = (&raw mut options).cast::<u8>();
        to.copy_from_nonoverlapping(bytes.as_ptr(), size.min(own));
    }
    Ok(options)
}

impl Options {
    /// The options at `pointer`; the defaults if it is null.
    ///
    /// # Safety
    /// `pointer` is null, or points to options of as many bytes as they say.
    pub(crate) unsafe fn read(pointer: *const Self) -> Result<Self, Error> {
        // SAFETY: by the contract of this function; all members are numbers.
        let options: Self = unsafe { sized(pointer) }?;
        if options.threads > MOST_THREADS {
            let reason = format!("{} threads, and {MOST_THREADS} are most", options.threads);
            return Err(Error::Options { reason });
        }
        Ok(options)
    }

    /// The number of threads, if it is not the default one.
    pub(crate) fn threads(&self) -> Option<usize> {
        (self.threads > 0).then_some(self.threads)
    }

    /// The limits that they set.
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        let chosen = |own: u64, default: u64| if own == 0 { default } else { own };
        let nodes = chosen(self.limit_nodes, default.nodes as u64);
        Limits {
            header_bytes: chosen(self.limit_header_bytes, default.header_bytes),
            nodes: usize::try_from(nodes).unwrap_or(usize::MAX),
            weight_bytes: chosen(self.limit_weight_bytes, default.weight_bytes),
            value_bytes: chosen(self.limit_value_bytes, default.value_bytes),
            iterations: chosen(self.limit_iterations, default.iterations),
        }
    }
}
