//! Memory for results that are written before anyone reads them: no pass of zeros over megabytes first.

#![allow(unsafe_code)] // what is written, the caller knows

use std::mem::{ManuallyDrop, MaybeUninit};

use super::Shared;

/// `len` values, none of them written yet.
pub(super) struct Fresh<T>(Vec<MaybeUninit<T>>);

impl<T: Copy> Fresh<T> {
    pub(super) fn new(len: usize) -> Self {
        let mut values = Vec::with_capacity(len);
        // SAFETY: so much was reserved, and `MaybeUninit` needs no value.
        unsafe { values.set_len(len) };
        Self(values)
    }

    /// Where threads write.
    pub(super) fn target(&mut self) -> Shared<T> {
        Shared(self.0.as_mut_ptr().cast())
    }

    pub(super) fn places(&mut self) -> &mut [MaybeUninit<T>] {
        &mut self.0
    }

    /// # Safety
    /// Every value has been written.
    pub(super) unsafe fn written(self) -> Vec<T> {
        let mut values = ManuallyDrop::new(self.0);
        // SAFETY: the same memory, of values that exist now; `MaybeUninit<T>` has the layout of `T`.
        unsafe { Vec::from_raw_parts(values.as_mut_ptr().cast(), values.len(), values.capacity()) }
    }
}

/// A line of values as a slice: zeros, which the cache still holds when they are written over.
pub(super) fn zeroed<T: Copy>(line: &mut [MaybeUninit<T>], zero: T) -> &mut [T] {
    line.fill(MaybeUninit::new(zero));
    // SAFETY: all of them have just been written.
    unsafe { &mut *(std::ptr::from_mut(line) as *mut [T]) }
}
