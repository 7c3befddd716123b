//! The instructions for tiles.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::{BLOCK_LEN, LINE, Operands, RUN, Sums, WEIGHTS_LEN};
use crate::amx::FULL;

/// Adds products to sums.
///
/// # Safety
/// The processor has tiles, which the process may use. There are as many sums as firsts, and
/// [`WEIGHTS_LEN`] weights for each tap; each tap plus each first plus [`BLOCK_LEN`] is at most the
/// length of the source.
pub(super) unsafe fn multiply(operands: &Operands<'_>, firsts: &[usize], sums: &mut [Sums]) {
    debug_assert_eq!(operands.weights.len(), operands.taps.len() * WEIGHTS_LEN);
    debug_assert_eq!(BLOCK_LEN, 2 * 16 * RUN);
    // SAFETY: the processor has tiles; the configuration is one that it allows, and is aligned.
    // Tiles are released before this returns, and no other code uses them.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &raw const FULL, options(nostack, readonly));
    }
    let mut ahead = operands.shares_ahead(firsts.len());
    for (&first, sums) in firsts.iter().zip(sums) {
        for line in ahead.next().unwrap_or(&[]).chunks(LINE) {
            // SAFETY: prefetching has no effect that a program can observe.
            unsafe { _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T1) };
        }
        // SAFETY: for each tap, its block lies inside the source, and it has 2,048 bytes of weights
        // of its own; sums are 4,096 bytes in rows of 128. Tiles are configured.
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {row}*2]",
                "tileloadd tmm1, [{sums} + {row}*2 + 64]",
                "tileloadd tmm2, [{sums} + {row}*2 + 2048]",
                "tileloadd tmm3, [{sums} + {row}*2 + 2112]",
                "2:",
                "mov {block}, [{tap}]",
                "lea {block}, [{source} + {block}*2]",
                "tileloadd tmm6, [{weights} + {row}*1]",
                "tileloadd tmm4, [{block} + {row}*1]",
                "tileloadd tmm7, [{weights} + {row}*1 + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{block} + {row}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {tap}, 8",
                "add {weights}, 2048",
                "cmp {tap}, {end}",
                "jne 2b",
                "tilestored [{sums} + {row}*2], tmm0",
                "tilestored [{sums} + {row}*2 + 64], tmm1",
                "tilestored [{sums} + {row}*2 + 2048], tmm2",
                "tilestored [{sums} + {row}*2 + 2112], tmm3",
                sums = in(reg) sums.0.as_mut_ptr(),
                source = in(reg) operands.source.as_ptr().add(first),
                tap = inout(reg) operands.taps.as_ptr() => _,
                end = in(reg) operands.taps.as_ptr().add(operands.taps.len()),
                weights = inout(reg) operands.weights.as_ptr() => _,
                row = in(reg) 64_u64,
                block = out(reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
    // SAFETY: tiles are configured.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}
