//! The packed matmul on AMX tiles: 16×16 sums of f32, 16×32 tiles of bf16.
//!
//! The compiler has no stable intrinsics for tiles, so the few instructions stand here as assembly. Sums of 32 rows × 32
//! outputs live in four tiles; for each step of 32 inputs, two weight tiles are loaded once and meet every plane of the
//! activations. Sums stay in tile registers from one piece of assembly to the next: no value of the language lives in such a
//! register, so nothing between the pieces can touch them. Instruction semantics: Intel SDM volume 2, "Intel AMX instruction set reference".

#![allow(unsafe_code)] // the point of this file

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use super::activations::{Activations, TILE_ROWS};
use super::packed::Line;

/// Whether the processor has bf16 tiles and the kernel lets this process use them (asks for it).
pub(super) fn available() -> bool {
    // CPUID leaf 7: EDX bit 22 is AMX-BF16, bit 24 AMX-TILE.
    let features = __cpuid_count(7, 0).edx;
    features & (1 << 22) != 0 && features & (1 << 24) != 0 && permitted()
}

/// Linux grants the tile registers per process, on request.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const SYS_ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call without memory operands; the clobbered registers are declared.
    unsafe {
        asm!("syscall", inlateout("rax") SYS_ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM,
             in("rsi") XFEATURE_XTILEDATA, out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// Eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig([u8; 64]);

static CONFIG: TileConfig = {
    let mut bytes = [0; 64];
    bytes[0] = 1; // palette
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64; // bytes per row
        bytes[48 + tile] = TILE_ROWS as u8;
        tile += 1;
    }
    TileConfig(bytes)
};

/// Sums of 16 rows × 32 columns.
#[repr(C, align(64))]
struct Tile([f32; 512]);

/// `panels`: two panels of packed weights. Writes `columns` columns of every row to `y`, rows `stride` apart.
///
/// # Safety
/// AMX is available; `y` has room for `x.rows` rows and is nobody else's.
pub(super) unsafe fn panel_pair(
    x: &Activations<'_>,
    panels: &[Line],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    let (left, right) = panels.split_at(panels.len() / 2);
    let tiles = x.rows.div_ceil(TILE_ROWS);
    // SAFETY: tile registers are configured for these shapes before use and released after; row tiles lie inside the
    // zero-padded planes, and the stores stay inside the rows and columns that the caller gave.
    unsafe {
        let mut before = TileConfig([0; 64]);
        asm!("sttilecfg [{}]", in(reg) &raw mut before, options(nostack));
        asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly));
        let mut first = 0;
        while first < tiles {
            let two = first + 1 < tiles;
            if two {
                sum_two(x, first, left, right);
            } else {
                sum_one(x, first, left, right);
            }
            let rows = (x.rows - first * TILE_ROWS).min(TILE_ROWS * (1 + usize::from(two)));
            let to = y.add(first * TILE_ROWS * stride);
            if columns == 32 && rows.is_multiple_of(TILE_ROWS) {
                store(to, to.add(16), stride);
                if two {
                    let to = to.add(TILE_ROWS * stride);
                    store_second(to, to.add(16), stride);
                }
            } else {
                store_part(to, stride, rows, columns, two);
            }
            first += 2;
        }
        // The tensor library configures the tiles of a thread once and relies on it: leave them as they were.
        if before.0[0] == 0 {
            asm!("tilerelease", options(nostack, nomem));
        } else {
            asm!("ldtilecfg [{}]", in(reg) &raw const before, options(nostack, readonly));
        }
    }
}

/// Stores tmm0 and tmm1, rows `stride` values apart.
unsafe fn store(left: *mut f32, right: *mut f32, stride: usize) {
    // SAFETY: the caller's: 16 rows of 16 values at both places.
    unsafe {
        asm!("tilestored [{a} + {s}], tmm0", "tilestored [{b} + {s}], tmm1", a = in(reg) left, b = in(reg) right,
             s = in(reg) stride * size_of::<f32>(), options(nostack));
    }
}

/// Stores tmm2 and tmm3.
unsafe fn store_second(left: *mut f32, right: *mut f32, stride: usize) {
    // SAFETY: as in `store`.
    unsafe {
        asm!("tilestored [{a} + {s}], tmm2", "tilestored [{b} + {s}], tmm3", a = in(reg) left, b = in(reg) right,
             s = in(reg) stride * size_of::<f32>(), options(nostack));
    }
}

/// Stores what of the tiles lies inside `rows` and `columns`, by way of a buffer.
unsafe fn store_part(to: *mut f32, stride: usize, rows: usize, columns: usize, two: bool) {
    let mut sums = std::mem::MaybeUninit::<[Tile; 2]>::uninit();
    let at: *mut f32 = sums.as_mut_ptr().cast();
    // SAFETY: the buffer holds 32 rows of 32 values, of which the stored ones are copied.
    unsafe {
        store(at, at.add(16), 32);
        if two {
            store_second(at.add(TILE_ROWS * 32), at.add(TILE_ROWS * 32 + 16), 32);
        }
        for row in 0..rows {
            std::ptr::copy_nonoverlapping(at.add(32 * row), to.add(row * stride), columns);
        }
    }
}

/// Sums of row tiles `tile` and `tile + 1` into tmm0…tmm3.
unsafe fn sum_two(x: &Activations<'_>, tile: usize, left: &[Line], right: &[Line]) {
    // SAFETY: see `panel_pair`.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", out("tmm0") _, out("tmm1") _, out("tmm2") _,
             out("tmm3") _, options(nostack, nomem));
        for step in 0..x.lines {
            asm!("tileloadd tmm6, [{l} + {s}]", "tileloadd tmm7, [{r} + {s}]", l = in(reg) left.as_ptr().add(16 * step),
                 r = in(reg) right.as_ptr().add(16 * step), s = in(reg) 64usize, out("tmm6") _, out("tmm7") _,
                 options(nostack, readonly));
            for plane in x.planes() {
                let rows = plane.as_ptr().add((tile * x.lines + step) * TILE_ROWS);
                asm!("tileloadd tmm4, [{a} + {s}]", "tdpbf16ps tmm0, tmm4, tmm6", "tileloadd tmm5, [{b} + {s}]",
                     "tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                     a = in(reg) rows, b = in(reg) rows.add(TILE_ROWS * x.lines), s = in(reg) 64usize, out("tmm0") _,
                     out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, options(nostack, readonly));
            }
        }
    }
}

/// Sums of row tile `tile` into tmm0 and tmm1.
unsafe fn sum_one(x: &Activations<'_>, tile: usize, left: &[Line], right: &[Line]) {
    // SAFETY: see `panel_pair`.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", out("tmm0") _, out("tmm1") _, options(nostack, nomem));
        for step in 0..x.lines {
            asm!("tileloadd tmm6, [{l} + {s}]", "tileloadd tmm7, [{r} + {s}]", l = in(reg) left.as_ptr().add(16 * step),
                 r = in(reg) right.as_ptr().add(16 * step), s = in(reg) 64usize, out("tmm6") _, out("tmm7") _,
                 options(nostack, readonly));
            for plane in x.planes() {
                let rows = plane.as_ptr().add((tile * x.lines + step) * TILE_ROWS);
                asm!("tileloadd tmm4, [{a} + {s}]", "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                     a = in(reg) rows, s = in(reg) 64usize, out("tmm0") _, out("tmm1") _, out("tmm4") _,
                     options(nostack, readonly));
            }
        }
    }
}
