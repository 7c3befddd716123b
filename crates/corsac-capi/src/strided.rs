//! Elements of tensors in memory that is not Rust's.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use corsac_engine::{DType, Data, DataMut, Element, Elements, Half, are_booleans};

use crate::error::{Error, no_memory};
use crate::layout::Layout;

/// A tensor in memory.
#[derive(Debug)]
pub(crate) struct Strided<'a> {
    start: *mut u8,
    layout: Layout,
    read_only: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Strided<'a> {
    /// The tensor whose elements lie as `layout` says from `start` on.
    ///
    /// # Safety
    /// During `'a`, the bytes of all elements can be read, and written to unless it is `read_only`;
    /// and nobody else writes to them while a method runs or what it returned is used.
    pub(crate) unsafe fn new(start: *mut u8, layout: Layout, read_only: bool) -> Self {
        Self {
            start,
            layout,
            read_only,
            memory: PhantomData,
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The addresses from the first element to the end of the last one.
    fn addresses(&self) -> Range<usize> {
        let start = self.start.addr();
        start..start + self.layout.size_bytes()
    }

    /// Whether the memory of both reaches over the same bytes.
    pub(crate) fn meets(&self, other: &Strided<'_>) -> bool {
        let (own, other) = (self.addresses(), other.addresses());
        !own.is_empty() && !other.is_empty() && own.start < other.end && other.start < own.end
    }

    /// The elements where they are, if they are stored as the engine stores them.
    pub(crate) fn data(&self) -> Option<Data<'a>> {
        let element = self.element_in_place()?;
        let len = self.layout.len();
        // SAFETY: `element_in_place` has found `len` elements of this type from the start, aligned,
        // which are only read during `'a` by the contract of `new`.
        let data = unsafe {
            match element {
                Element::F32 => Data::F32(std::slice::from_raw_parts(self.start.cast(), len)),
                Element::F64 => Data::F64(std::slice::from_raw_parts(self.start.cast(), len)),
                Element::I64 => Data::I64(std::slice::from_raw_parts(self.start.cast(), len)),
                Element::Bool => Data::Bool(std::slice::from_raw_parts(self.start.cast(), len)),
            }
        };
        match data {
            Data::Bool(bytes) if !are_booleans(bytes) => None,
            data => Some(data),
        }
    }

    /// The elements where they are, to be written to, if they are stored as the engine stores them.
    ///
    /// # Safety
    /// It is not `read_only`. During `'a`, nothing else refers to memory that it [`meets`](Self::meets).
    pub(crate) unsafe fn data_mut(&self) -> Option<DataMut<'a>> {
        let element = self.element_in_place()?;
        let len = self.layout.len();
        // SAFETY: as in `data`; by the contracts of this function and of `new`, they can be written to
        // and nothing else refers to them. Memory of C has some value in every byte, and numbers and
        // bytes may have any.
        Some(unsafe {
            let start = self.start;
            match element {
                Element::F32 => DataMut::F32(std::slice::from_raw_parts_mut(start.cast(), len)),
                Element::F64 => DataMut::F64(std::slice::from_raw_parts_mut(start.cast(), len)),
                Element::I64 => DataMut::I64(std::slice::from_raw_parts_mut(start.cast(), len)),
                Element::Bool => DataMut::Bool(std::slice::from_raw_parts_mut(start.cast(), len)),
            }
        })
    }

    /// The element type of the engine, if the elements are of it, row by row, and aligned.
    fn element_in_place(&self) -> Option<Element> {
        let element = match self.layout.dtype() {
            DType::Float32 => Element::F32,
            DType::Float64 => Element::F64,
            DType::Int64 => Element::I64,
            DType::Bool => Element::Bool,
            _ => return None,
        };
        let is_aligned = self.start.addr().is_multiple_of(element.size_bytes());
        let is_there = self.layout.len() > 0 && self.layout.is_in_rows() && is_aligned;
        is_there.then_some(element)
    }

    /// A copy of the elements, as the engine stores them, row by row.
    pub(crate) fn gathered(&self) -> Result<Elements, Error> {
        Ok(match self.layout.dtype() {
            DType::Float32 => Elements::F32(self.read()?),
            DType::Float64 => Elements::F64(self.read()?),
            DType::Int64 => Elements::I64(self.read()?),
            DType::Int32 => Elements::I64(self.read_as::<i32, _>()?),
            DType::Int16 => Elements::I64(self.read_as::<i16, _>()?),
            DType::Int8 => Elements::I64(self.read_as::<i8, _>()?),
            DType::UInt8 => Elements::I64(self.read_as::<u8, _>()?),
            dtype => match Half::of(dtype) {
                Some(half) => {
                    let bits = self.read()?;
                    let mut numbers = zeros(bits.len())?;
                    half.widen(&bits, &mut numbers);
                    Elements::F32(numbers)
                }
                None => Elements::bools(self.read()?),
            },
        })
    }

    /// Writes `elements`, of the engine's type and of numbers of the tensor's, row by row.
    ///
    /// # Safety
    /// It is not `read_only`. Nothing refers to its memory.
    pub(crate) unsafe fn scatter(&self, elements: &Elements) -> Result<(), Error> {
        let dtype = self.layout.dtype();
        // SAFETY: by the contract of this function. Integers are in the range of their type.
        unsafe {
            match elements {
                Elements::F32(own) => match Half::of(dtype) {
                    Some(half) => {
                        let mut bits = zeros(own.len())?;
                        half.round(own, &mut bits);
                        self.write(bits.into_iter());
                    }
                    None => self.write(own.iter().copied()),
                },
                Elements::F64(own) => self.write(own.iter().copied()),
                Elements::I64(own) => match dtype {
                    DType::Int32 => self.write(own.iter().map(|&own| own as i32)),
                    DType::Int16 => self.write(own.iter().map(|&own| own as i16)),
                    DType::Int8 => self.write(own.iter().map(|&own| own as i8)),
                    DType::UInt8 => self.write(own.iter().map(|&own| own as u8)),
                    _ => self.write(own.iter().copied()),
                },
                Elements::Bool(own) => self.write(own.iter().copied()),
            }
        }
        Ok(())
    }

    /// A copy of the elements, which are numbers of type `T`.
    fn read<T: Pod>(&self) -> Result<Vec<T>, Error> {
        let mut elements = zeros(self.layout.len())?;
        debug_assert_eq!(
            size_of::<T>(),
            crate::dtype::size_bytes(self.layout.dtype())
        );
        if self.layout.is_in_rows() {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
            if !bytes.is_empty() {
                let to = bytes.as_mut_ptr();
                // SAFETY: the elements of the tensor are these bytes, and `elements` is new memory.
                unsafe { to.copy_from_nonoverlapping(self.start, bytes.len()) };
            }
            return Ok(elements);
        }
        let mut to = elements.iter_mut();
        self.layout.for_each_place(|place| {
            if let Some(to) = to.next() {
                // SAFETY: there is an element at each place of the layout, by the contract of `new`.
                *to = unsafe { self.start.cast::<T>().add(place).read_unaligned() };
            }
        });
        Ok(elements)
    }

    fn read_as<T: Pod + Into<W>, W>(&self) -> Result<Vec<W>, Error> {
        let narrow: Vec<T> = self.read()?;
        let mut wide = reserved(narrow.len())?;
        wide.extend(narrow.into_iter().map(T::into));
        Ok(wide)
    }

    /// Writes all elements.
    ///
    /// # Safety
    /// As [`Strided::scatter`], and `T` is of the size of its elements.
    unsafe fn write<T: Pod>(&self, mut elements: impl Iterator<Item = T>) {
        debug_assert_eq!(
            size_of::<T>(),
            crate::dtype::size_bytes(self.layout.dtype())
        );
        self.layout.for_each_place(|place| {
            if let Some(element) = elements.next() {
                // SAFETY: there is an element at each place of the layout, by the contract of `new`,
                // which may be written to, by that of this function.
                unsafe { self.start.cast::<T>().add(place).write_unaligned(element) };
            }
        });
    }
}

/// A vector with room for `len` items.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    match items.try_reserve_exact(len) {
        Ok(()) => Ok(items),
        Err(_) => Err(no_memory(len.saturating_mul(size_of::<T>()))),
    }
}

/// `len` zeros.
fn zeros<T: Pod>(len: usize) -> Result<Vec<T>, Error> {
    let mut items = reserved(len)?;
    items.resize(len, T::zeroed());
    Ok(items)
}

/// Zeros for the engine to write to.
pub(crate) fn blank(element: Element, len: usize) -> Result<Elements, Error> {
    Ok(match element {
        Element::F32 => Elements::F32(zeros(len)?),
        Element::F64 => Elements::F64(zeros(len)?),
        Element::I64 => Elements::I64(zeros(len)?),
        Element::Bool => Elements::Bool(zeros(len)?),
    })
}
