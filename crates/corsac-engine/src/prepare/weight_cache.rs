//! Packed weights, shared by the programs of one model.
//!
//! A model has a program for each set of shapes that it is called with. Its weights are the same in
//! all of them, and packing them takes longer than the rest of compilation: a program reuses the
//! weights that earlier ones have packed. Weights that no program uses any more are freed.

use std::sync::{Arc, Mutex, Weak};

use rustc_hash::FxHashMap;

use crate::data::Elements;
use crate::kernels::bf16::conv::Bf16Conv;
use crate::kernels::blocked::ConvAlgorithm;
use crate::kernels::blocked::conv::BlockedConv;
use crate::kernels::blocked::depthwise::BlockedDepthwise;
use crate::kernels::conv::ConvKernel;
use crate::kernels::double::linear::DoubleLinear;
use crate::kernels::int8::conv::Int8Conv;
use crate::kernels::int8::linear::Int8Linear;
use crate::kernels::int8::weight_only::WeightOnlyLinear;
use crate::kernels::linear::Linear;
use crate::program::{ConvShape, Program, Quantised, Source, ValueId, WeightTransform};

/// Weights that programs share. A cache belongs to one set of weights: when they change, a new one
/// is needed.
#[derive(Debug, Default)]
pub struct WeightCache {
    packed: Mutex<FxHashMap<PackKey, Held>>,
    unpacked: Mutex<FxHashMap<WeightKey, Weak<Vec<f32>>>>,
    others: Mutex<FxHashMap<WeightKey, Weak<Elements>>>,
}

/// Key of a weight, whatever its number in a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WeightKey {
    /// The weight that the host has under this number.
    Given(usize),
    /// A weight computed from others: the transform, the bits of the number that is added to
    /// variances, the format of integers, and the keys of the inputs.
    Transformed {
        transform: std::mem::Discriminant<WeightTransform>,
        eps_bits: u64,
        format: Option<Quantised>,
        of: Vec<WeightKey>,
    },
}

impl WeightKey {
    /// The key of `value`, unless it is computed while the program runs.
    pub(crate) fn of(program: &Program, value: ValueId) -> Option<Self> {
        match program.value(program.root(value)).source {
            Source::Weight(number) => Some(Self::Given(number)),
            Source::Transformed(number) => {
                let (transform, inputs) = &program.weight_transforms[number];
                let of = inputs.iter().map(|&input| Self::of(program, input));
                Some(Self::Transformed {
                    transform: std::mem::discriminant(transform),
                    eps_bits: transform.eps().to_bits(),
                    format: transform.quantised(),
                    of: of.collect::<Option<_>>()?,
                })
            }
            Source::Input(_) | Source::Step | Source::Alias(_) => None,
        }
    }
}

/// The format in which weights are packed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PackFormat {
    /// For a convolution of these shapes. The number of images does not matter.
    Conv(ConvShape),
    /// For a convolution in blocks of channels.
    Blocked(ConvShape, ConvAlgorithm),
    /// For a linear layer with these numbers of outputs and inputs, and this number of blocks of
    /// outputs that are computed together; `None` for bfloat16.
    Linear([usize; 2], Option<usize>),
    /// For a linear layer with these numbers of outputs and inputs, over rows rounded in a way with these
    /// bits.
    Int8Linear([usize; 2], [u32; 5]),
    /// For a linear layer with these numbers of outputs and inputs, over rows of numbers.
    WeightOnly([usize; 2]),
    /// For a linear layer of double precision with these numbers of outputs and inputs.
    DoubleLinear([usize; 2]),
    /// For a convolution of these shapes over images of levels with these bits.
    Int8Conv(ConvShape, [u32; 5]),
}

impl PackFormat {
    /// Whether weights are packed as integers.
    pub(crate) fn is_of_integers(&self) -> bool {
        match self {
            Self::Int8Linear(..) | Self::Int8Conv(..) | Self::WeightOnly(_) => true,
            Self::Conv(_) | Self::Blocked(..) | Self::Linear(..) | Self::DoubleLinear(_) => false,
        }
    }
}

/// Key of packed weights: their format, and the weight and bias that were packed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackKey {
    pub(crate) format: PackFormat,
    pub(crate) weight: WeightKey,
    pub(crate) bias: Option<WeightKey>,
}

/// Packed weights.
#[derive(Clone, Debug)]
pub(crate) enum Packed {
    Conv(Arc<ConvKernel>),
    BlockedConv(Arc<BlockedConv>),
    BlockedDepthwise(Arc<BlockedDepthwise>),
    Bf16Conv(Arc<Bf16Conv>),
    Linear(Arc<Linear>),
    DoubleLinear(Arc<DoubleLinear>),
    Int8Linear(Arc<Int8Linear>),
    Int8Conv(Arc<Int8Conv>),
    WeightOnly(Arc<WeightOnlyLinear>),
}

/// Packed weights, held weakly: they live as long as a program has them.
#[derive(Debug)]
enum Held {
    Conv(Weak<ConvKernel>),
    BlockedConv(Weak<BlockedConv>),
    BlockedDepthwise(Weak<BlockedDepthwise>),
    Bf16Conv(Weak<Bf16Conv>),
    Linear(Weak<Linear>),
    DoubleLinear(Weak<DoubleLinear>),
    Int8Linear(Weak<Int8Linear>),
    Int8Conv(Weak<Int8Conv>),
    WeightOnly(Weak<WeightOnlyLinear>),
}

impl Packed {
    fn held(&self) -> Held {
        match self {
            Self::Conv(kernel) => Held::Conv(Arc::downgrade(kernel)),
            Self::BlockedConv(kernel) => Held::BlockedConv(Arc::downgrade(kernel)),
            Self::BlockedDepthwise(kernel) => Held::BlockedDepthwise(Arc::downgrade(kernel)),
            Self::Bf16Conv(kernel) => Held::Bf16Conv(Arc::downgrade(kernel)),
            Self::Linear(kernel) => Held::Linear(Arc::downgrade(kernel)),
            Self::DoubleLinear(kernel) => Held::DoubleLinear(Arc::downgrade(kernel)),
            Self::Int8Linear(kernel) => Held::Int8Linear(Arc::downgrade(kernel)),
            Self::Int8Conv(kernel) => Held::Int8Conv(Arc::downgrade(kernel)),
            Self::WeightOnly(kernel) => Held::WeightOnly(Arc::downgrade(kernel)),
        }
    }
}

impl Held {
    fn taken(&self) -> Option<Packed> {
        match self {
            Self::Conv(kernel) => kernel.upgrade().map(Packed::Conv),
            Self::BlockedConv(kernel) => kernel.upgrade().map(Packed::BlockedConv),
            Self::BlockedDepthwise(kernel) => kernel.upgrade().map(Packed::BlockedDepthwise),
            Self::Bf16Conv(kernel) => kernel.upgrade().map(Packed::Bf16Conv),
            Self::Linear(kernel) => kernel.upgrade().map(Packed::Linear),
            Self::DoubleLinear(kernel) => kernel.upgrade().map(Packed::DoubleLinear),
            Self::Int8Linear(kernel) => kernel.upgrade().map(Packed::Int8Linear),
            Self::Int8Conv(kernel) => kernel.upgrade().map(Packed::Int8Conv),
            Self::WeightOnly(kernel) => kernel.upgrade().map(Packed::WeightOnly),
        }
    }
}

impl WeightCache {
    /// The packed weights of `key`, if they are still in use.
    pub(crate) fn packed(&self, key: &PackKey) -> Option<Packed> {
        self.packed.lock().ok()?.get(key)?.taken()
    }

    pub(crate) fn keep_packed(&self, key: PackKey, packed: &Packed) {
        if let Ok(mut all) = self.packed.lock() {
            all.insert(key, packed.held());
        }
    }

    /// The loaded weight of `key`, if it is still in use.
    pub(crate) fn unpacked(&self, key: &WeightKey) -> Option<Arc<Vec<f32>>> {
        self.unpacked.lock().ok()?.get(key)?.upgrade()
    }

    pub(crate) fn keep_unpacked(&self, key: WeightKey, weight: &Arc<Vec<f32>>) {
        if let Ok(mut all) = self.unpacked.lock() {
            all.insert(key, Arc::downgrade(weight));
        }
    }

    /// The integer or boolean weight of `key`, if it is still in use.
    pub(crate) fn other(&self, key: &WeightKey) -> Option<Arc<Elements>> {
        self.others.lock().ok()?.get(key)?.upgrade()
    }

    pub(crate) fn keep_other(&self, key: WeightKey, weight: &Arc<Elements>) {
        if let Ok(mut all) = self.others.lock() {
            all.insert(key, Arc::downgrade(weight));
        }
    }
}
