//! Arrays in `*.npy` files.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use corsac_engine::{DType, Elements, InputSpec, Size, Tensor};
use half::f16;
use npyz::{NpyFile, Order, WriterBuilder};

use crate::failure::Failure;

/// First bytes of `*.npy` files.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum size of a header, in bytes: headers that numpy writes have about a hundred.
const HEADER: usize = 4096;

/// Reads the array in the file at `path`, as an input that fits `spec`.
pub(crate) fn read(path: &Path, spec: &InputSpec) -> Result<Tensor, Failure> {
    let wrong = |reason: String| Failure::array(path, reason);
    let file = File::open(path).map_err(|error| Failure::array(path, error))?;
    let bytes = file
        .metadata()
        .map_err(|error| Failure::array(path, error))?
        .len();
    let mut reader = BufReader::new(file);
    // Headers are nested text: a hostile one is rejected before it is parsed.
    let head = head(&mut reader).map_err(|error| Failure::array(path, error))?;
    let text = &head[head.len().min(10)..];
    let text = &text[..text.iter().position(|&b| b == b'\n').unwrap_or(text.len())];
    if text
        .iter()
        .filter(|&&b| matches!(b, b'(' | b'[' | b'{'))
        .count()
        > 8
    {
        return Err(wrong("an array of numbers is needed".to_owned()));
    }
    let whole = head.chain(reader);
    let array = catch_unwind(AssertUnwindSafe(|| NpyFile::new(whole)));
    let array = array.map_err(|_| wrong("the shape cannot be".to_owned()))?;
    let array = array.map_err(|error| wrong(error.to_string().replace('\n', " ")))?;
    let is_own = |(size, &given): (&Size, &u64)| match size {
        Size::Fixed(size) => *size as u64 == given,
        Size::Symbolic { .. } => true,
    };
    let shape = array.shape();
    let count = shape
        .iter()
        .try_fold(1_u64, |count, &size| count.checked_mul(size));
    if shape.len() != spec.shape.len() || !spec.shape.iter().zip(shape).all(is_own) {
        return Err(wrong(format!(
            "the shape is {shape:?}, and {spec} is needed"
        )));
    }
    if count.is_none_or(|count| count > bytes) {
        return Err(wrong("it is not whole".to_owned()));
    }
    let shape: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
    let elements: Elements = match spec.dtype {
        // numpy has no bfloat16.
        DType::Float32 | DType::BFloat16 => numbers::<f32, _>(path, spec, &shape, array)?.into(),
        DType::Float64 => numbers::<f64, _>(path, spec, &shape, array)?.into(),
        DType::Float16 => wide::<_, f32>(numbers::<f16, _>(path, spec, &shape, array)?),
        DType::Int64 => numbers::<i64, _>(path, spec, &shape, array)?.into(),
        DType::Int32 => wide::<_, i64>(numbers::<i32, _>(path, spec, &shape, array)?),
        DType::Int16 => wide::<_, i64>(numbers::<i16, _>(path, spec, &shape, array)?),
        DType::Int8 => wide::<_, i64>(numbers::<i8, _>(path, spec, &shape, array)?),
        DType::UInt8 => wide::<_, i64>(numbers::<u8, _>(path, spec, &shape, array)?),
        DType::Bool => numbers::<bool, _>(path, spec, &shape, array)?.into(),
        dtype => return Err(wrong(format!("arrays of {dtype} are not read"))),
    };
    let tensor = Tensor::new(shape, elements);
    let tensor = tensor.and_then(|tensor| tensor.with_dtype(spec.dtype));
    tensor.map_err(|error| wrong(error.to_string()))
}

/// Numbers as elements with more bits.
fn wide<T, W: From<T>>(numbers: Vec<T>) -> Elements
where
    Vec<W>: Into<Elements>,
{
    let numbers: Vec<W> = numbers.into_iter().map(W::from).collect();
    numbers.into()
}

/// The numbers of an array of this shape, row by row.
fn numbers<T: npyz::Deserialize + Copy, R: Read>(
    path: &Path,
    spec: &InputSpec,
    shape: &[usize],
    array: NpyFile<R>,
) -> Result<Vec<T>, Failure> {
    let wrong = |reason: String| Failure::array(path, reason);
    let order = array.order();
    let dtype = array.dtype().descr();
    let held = match spec.dtype {
        DType::BFloat16 => ", as '<f4'",
        _ => "",
    };
    let numbers = array.data::<T>().map_err(|_| {
        wrong(format!(
            "elements are {}, and {spec} is needed{held}",
            dtype.trim()
        ))
    })?;
    let numbers: std::io::Result<Vec<T>> = numbers.collect();
    let numbers = numbers.map_err(|_| wrong("it is not whole".to_owned()))?;
    Ok(match order {
        Order::C => numbers,
        Order::Fortran => row_by_row(&numbers, shape),
    })
}

/// Reads the beginning of a file, with its header.
fn head(reader: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(HEADER as u64).read_to_end(&mut head)?;
    if !head.starts_with(MAGIC) {
        return Err(std::io::Error::other(
            "this is no .npy file, as numpy.save writes",
        ));
    }
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0_usize, |n, &b| n << 8 | usize::from(b))
    };
    let len = match head.get(6) {
        Some(1) => head.get(8..10).map_or(0, number),
        _ => head.get(8..12).map_or(0, number),
    };
    match len <= HEADER {
        true => Ok(head),
        false => Err(std::io::Error::other(format!("a header of {len} bytes"))),
    }
}

/// Reorders column-major elements to row-major.
fn row_by_row<T: Copy>(elements: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = vec![1; shape.len()];
    for at in 1..shape.len() {
        strides[at] = strides[at - 1] * shape[at - 1];
    }
    let mut index = vec![0; shape.len()];
    let mut rows = Vec::with_capacity(elements.len());
    for _ in 0..elements.len() {
        let at: usize = index
            .iter()
            .zip(&strides)
            .map(|(i, stride)| i * stride)
            .sum();
        rows.push(elements[at]);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    rows
}

/// Writes `tensor` to the file at `path`: of bfloat16 as float32, as numpy has no bfloat16.
pub(crate) fn write(path: &Path, tensor: &Tensor) -> Result<(), Failure> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    let written = match tensor.elements() {
        Elements::F32(own) if dtype == DType::Float16 => {
            write_numbers(path, shape, own.iter().map(|&own| f16::from_f32(own)))
        }
        Elements::F32(own) => write_numbers(path, shape, own.iter().copied()),
        Elements::F64(own) => write_numbers(path, shape, own.iter().copied()),
        // In the range of the type.
        Elements::I64(own) => match dtype {
            DType::Int32 => write_numbers(path, shape, own.iter().map(|&own| own as i32)),
            DType::Int16 => write_numbers(path, shape, own.iter().map(|&own| own as i16)),
            DType::Int8 => write_numbers(path, shape, own.iter().map(|&own| own as i8)),
            DType::UInt8 => write_numbers(path, shape, own.iter().map(|&own| own as u8)),
            _ => write_numbers(path, shape, own.iter().copied()),
        },
        Elements::Bool(own) => write_numbers(path, shape, own.iter().map(|&byte| byte != 0)),
    };
    written.map_err(|error| Failure::array(path, error))
}

fn write_numbers<T: npyz::AutoSerialize>(
    path: &Path,
    shape: &[usize],
    numbers: impl Iterator<Item = T>,
) -> std::io::Result<()> {
    let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    let mut file = BufWriter::new(File::create(path)?);
    let options = npyz::WriteOptions::new().default_dtype().shape(&shape);
    let mut writer = options.writer(&mut file).begin_nd()?;
    writer.extend(numbers)?;
    writer.finish()?;
    file.flush()
}
