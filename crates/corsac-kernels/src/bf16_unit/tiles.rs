//! The instructions for tiles, and the permission to use them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _MM_HINT_T1, _mm_prefetch};

use super::{BLOCK_LEN, LINE, Operands, RUN, Sums, WEIGHTS_LEN};

/// Number of the Linux system call `arch_prctl`, its command `ARCH_REQ_XCOMP_PERM`, and the
/// requested state, `XTILEDATA` (Linux, Documentation/arch/x86/xstate.rst).
const ARCH_PRCTL: i64 = 158;
const REQUEST_PERMISSION: u64 = 0x1023;
const TILE_DATA: u64 = 18;

/// Tile configuration, in the layout that `ldtilecfg` reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight tiles of sixteen rows of 64 bytes.
static CONFIGURATION: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Whether the processor has tiles and multiplies bfloat16 numbers in them.
pub(super) fn has_tiles() -> bool {
    if __cpuid(0).eax < 7 {
        return false;
    }
    let found = __cpuid_count(7, 0).edx;
    let (bf16, tiles) = (1 << 22, 1 << 24);
    found & bf16 != 0 && found & tiles != 0
}

/// Requests permission to use tiles, which the system then saves when it switches between threads.
/// Once granted, it holds for all threads of the process.
pub(super) fn may_use_tiles() -> bool {
    if !cfg!(target_os = "linux") {
        return false;
    }
    let status: i64;
    // SAFETY: the call takes numbers and touches no memory; the kernel changes rcx and r11 alone. A
    // system without it returns an error.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => status,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status == 0
}

/// Adds products to sums.
///
/// # Safety
/// `has_tiles` and `may_use_tiles` have returned true. There are as many sums as firsts, and
/// [`WEIGHTS_LEN`] weights for each tap; each tap plus each first plus [`BLOCK_LEN`] is at most the
/// length of the source.
pub(super) unsafe fn multiply(operands: &Operands<'_>, firsts: &[usize], sums: &mut [Sums]) {
    debug_assert_eq!(operands.weights.len(), operands.taps.len() * WEIGHTS_LEN);
    debug_assert_eq!(BLOCK_LEN, 2 * 16 * RUN);
    // SAFETY: the processor has tiles; the configuration is one that it allows, and is aligned.
    // Tiles are released before this returns, and no other code uses them.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly));
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
