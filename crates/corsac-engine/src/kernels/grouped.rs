//! Convolutions with small groups of channels: shifted runs of the images of a group are multiplied
//! with weights and summed in registers, for several results at a time. No patches are gathered.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::shifted::Shifted;
use crate::aligned_buffer::zeros;

/// Vectors of a run that are summed at a time.
const VECTORS: usize = 2;
/// Largest number of their elements.
const WIDEST: usize = VECTORS * 16;

/// The channels of a group.
pub(super) struct Group<'a> {
    pub(super) layout: &'a Shifted,
    /// Channels of the image.
    pub(super) inputs: usize,
    /// Of shape `[outputs, inputs, taps]`.
    pub(super) weights: &'a [f32],
    /// For each output.
    pub(super) bias: Option<&'a [f32]>,
}

/// The images of a group with zeros around, and results with their pitch.
pub(super) struct Scratch {
    planes: Vec<f32>,
    sums: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(layout: &Shifted, inputs: usize, outputs: usize) -> Self {
        Self {
            // Runs are read in whole vectors.
            planes: zeros(inputs * layout.planes_len() + WIDEST),
            sums: zeros(outputs * layout.run_len().next_multiple_of(WIDEST)),
        }
    }
}

impl Group<'_> {
    /// Computes the planes of the results of the group.
    pub(super) fn run(
        &self,
        images: &[f32],
        image: usize,
        out: &mut [f32],
        plane: usize,
        scratch: &mut Scratch,
    ) {
        let layout = self.layout;
        let planes = scratch.planes.chunks_exact_mut(layout.planes_len());
        for (image, planes) in images.chunks_exact(image).zip(planes) {
            layout.separate(image, planes);
        }
        Sums {
            group: self,
            planes: &scratch.planes,
            sums: &mut scratch.sums,
        }
        .dispatch();
        let pitch = layout.run_len().next_multiple_of(WIDEST);
        for (out, sums) in out
            .chunks_exact_mut(plane)
            .zip(scratch.sums.chunks_exact(pitch))
        {
            layout.collect(&sums[..layout.run_len()], out);
        }
    }
}

struct Sums<'a> {
    group: &'a Group<'a>,
    planes: &'a [f32],
    sums: &'a mut [f32],
}

impl SimdOp for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let outputs = self.sums.len() / self.pitch();
        let mut first = 0;
        // Eight sums of two vectors fit where there are 32 registers.
        let most = if isa.f32().len() == 16 { 8 } else { 4 };
        while first < outputs {
            let count = match (outputs - first).min(most) {
                8.. => self.rows::<I, 8>(isa, first),
                4.. => self.rows::<I, 4>(isa, first),
                2.. => self.rows::<I, 2>(isa, first),
                _ => self.rows::<I, 1>(isa, first),
            };
            first += count;
        }
    }
}

impl Sums<'_> {
    fn pitch(&self) -> usize {
        self.group.layout.run_len().next_multiple_of(WIDEST)
    }

    /// The sums of `P` results from `first` on.
    // Loops over ranges, as in the tiles of blocks: they are unrolled before sums are put in
    // registers.
    #[inline(always)]
    fn rows<I: Isa, const P: usize>(&mut self, isa: I, first: usize) -> usize {
        let ops = isa.f32();
        let (len, pitch) = (ops.len(), self.pitch());
        let Group {
            layout,
            inputs,
            weights,
            bias,
        } = *self.group;
        let taps = &layout.taps[..];
        let depth = inputs * taps.len();
        let weights = &weights[first * depth..][..P * depth];
        let sums = &mut self.sums[first * pitch..][..P * pitch];
        for start in (0..layout.run_len()).step_by(VECTORS * len) {
            let mut own = [[ops.splat(0.0); VECTORS]; P];
            if let Some(bias) = bias {
                for p in 0..P {
                    own[p] = [ops.splat(bias[first + p]); VECTORS];
                }
            }
            for input in 0..inputs {
                let plane = &self.planes[input * layout.planes_len() + start..];
                for (tap, &at) in taps.iter().enumerate() {
                    let run = &plane[at..][..VECTORS * len];
                    let mut x = [ops.splat(0.0); VECTORS];
                    for v in 0..VECTORS {
                        x[v] = ops.load(&run[v * len..][..len]);
                    }
                    let weights = &weights[input * taps.len() + tap..][..(P - 1) * depth + 1];
                    for p in 0..P {
                        let weight = ops.splat(weights[p * depth]);
                        for v in 0..VECTORS {
                            own[p][v] = ops.mul_add(weight, x[v], own[p][v]);
                        }
                    }
                }
            }
            for p in 0..P {
                let sums = &mut sums[p * pitch + start..][..VECTORS * len];
                for v in 0..VECTORS {
                    ops.store(own[p][v], &mut sums[v * len..][..len]);
                }
            }
        }
        P
    }
}
