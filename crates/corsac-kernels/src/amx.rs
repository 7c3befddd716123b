//! Tiles of the processor (AMX): which it has, the permission to use them, and their configuration.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

/// Number of the Linux system call `arch_prctl`, its command `ARCH_REQ_XCOMP_PERM`, and the
/// requested state, `XTILEDATA` (Linux, Documentation/arch/x86/xstate.rst).
const ARCH_PRCTL: i64 = 158;
const REQUEST_PERMISSION: u64 = 0x1023;
const TILE_DATA: u64 = 18;

/// Tile configuration, in the layout that `ldtilecfg` reads.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    pub(crate) bytes: [u16; 16],
    pub(crate) rows: [u8; 16],
}

/// Eight tiles of sixteen rows of 64 bytes.
pub(crate) static FULL: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Products that tiles compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Products {
    /// Of bfloat16 numbers.
    Bf16,
    /// Of bytes.
    Int8,
}

/// Whether the processor has tiles and these products, and the system lets the process use them.
pub(crate) fn has_tiles(products: Products) -> bool {
    if __cpuid(0).eax < 7 {
        return false;
    }
    let found = __cpuid_count(7, 0).edx;
    let tiles = 1 << 24;
    let needed = match products {
        Products::Bf16 => tiles | 1 << 22,
        Products::Int8 => tiles | 1 << 25,
    };
    found & needed == needed && may_use_tiles()
}

/// Requests permission to use tiles, which the system then saves when it switches between threads.
/// Once granted, it holds for all threads of the process.
fn may_use_tiles() -> bool {
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
