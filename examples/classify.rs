//! Classifies an image with a model in a file, without Python and PyTorch.
//!
//! Write the model once, with Python:
//!
//! ```python
//! import torch, torchvision, corsac
//! model = torchvision.models.resnet50(weights="IMAGENET1K_V1").eval()
//! corsac.save(model, "resnet50.safetensors", torch.zeros(1, 3, 224, 224))
//! ```
//!
//! and classify images (PNG, JPEG) anywhere:
//!
//! ```text
//! cargo run --release --example classify -- resnet50.safetensors cat.jpg
//! ```
//!
//! Images are prepared as `torchvision.models.ResNet50_Weights.IMAGENET1K_V1.transforms()` prepares
//! them: the shorter side becomes 256 pixels, as Pillow resizes, the middle is cut out, and channels
//! are normalised with the means and deviations of ImageNet.

use std::error::Error;
use std::process::ExitCode;

use corsac_engine::{Model, Tensor};
use image::RgbImage;

/// Means and standard deviations of the channels over ImageNet.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// The shorter side of the image before the middle is cut out.
const SHORT_SIDE: usize = 256;

/// How many classes are printed.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &arguments[..] else {
        eprintln!("usage: classify MODEL.safetensors IMAGE");
        return ExitCode::from(2);
    };
    match classify(model, image) {
        Ok(classes) => {
            for (class, probability) in classes {
                println!("class {class}: {probability:.6}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("classify: error: {error}");
            ExitCode::from(2)
        }
    }
}

/// The most probable classes of the image, with their probabilities.
fn classify(model: &str, image: &str) -> Result<Vec<(usize, f32)>, Box<dyn Error>> {
    let model = Model::load(model)?;
    let [input] = model.inputs() else {
        return Err("the model takes more than one image".into());
    };
    let [1, 3, rows, columns] = input.shape[..] else {
        return Err(format!("the model takes {input}, not one image").into());
    };
    let image = image::open(image)?.into_rgb8();
    let pixels = prepared(&image, [rows, columns])?;
    let results = model.run(&[Tensor::new([1, 3, rows, columns], pixels)?])?;
    let scores = results.first().and_then(Tensor::as_f32);
    let scores = scores.ok_or("the model has no scores as its result")?;
    let mut classes: Vec<(usize, f32)> = softmax(scores).into_iter().enumerate().collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes.truncate(SHOWN);
    Ok(classes)
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponents: Vec<f32> = scores.iter().map(|x| (x - largest).exp()).collect();
    let sum: f32 = exponents.iter().sum();
    exponents.iter().map(|x| x / sum).collect()
}

/// The middle of the image after resizing, channel by channel, normalised.
fn prepared(image: &RgbImage, [rows, columns]: [usize; 2]) -> Result<Vec<f32>, Box<dyn Error>> {
    let (width, height) = (image.width() as usize, image.height() as usize);
    if width == 0 || height == 0 || rows > SHORT_SIDE || columns > SHORT_SIDE {
        return Err("the image or the model is of a size that this program does not know".into());
    }
    let short = width.min(height) as f64;
    let long_side = |side: usize| (SHORT_SIDE as f64 * side as f64 / short) as usize;
    let (new_width, new_height) = (long_side(width), long_side(height));
    let wide = resized(image.as_raw(), [height, width], new_width);
    // Columns are resized as rows of the image on its side.
    let turned = resized(
        &transposed(&wide, [height, new_width]),
        [new_width, height],
        new_height,
    );
    let pixels = transposed(&turned, [new_width, new_height]);
    let (top, left) = (middle(new_height, rows), middle(new_width, columns));
    let mut values = Vec::with_capacity(3 * rows * columns);
    for channel in 0..3 {
        for row in top..top + rows {
            for column in left..left + columns {
                let pixel = pixels[(row * new_width + column) * 3 + channel];
                let value = f32::from(pixel) / 255.0;
                values.push((value - MEAN[channel]) / DEVIATION[channel]);
            }
        }
    }
    Ok(values)
}

/// Where the middle part begins. Half a pixel goes to the even side, as Python rounds.
fn middle(size: usize, part: usize) -> usize {
    let start = (size - part) / 2;
    start + usize::from((size - part) % 2 == 1 && start % 2 == 1)
}

/// An image of three channels on its side.
fn transposed(pixels: &[u8], [rows, columns]: [usize; 2]) -> Vec<u8> {
    let mut turned = Vec::with_capacity(pixels.len());
    for column in 0..columns {
        for row in 0..rows {
            let at = (row * columns + column) * 3;
            turned.extend_from_slice(&pixels[at..at + 3]);
        }
    }
    turned
}

/// Bits behind the point of weights. Source: Pillow's `Resample.c`.
const PRECISION: u32 = 22;

/// The rows of an image at another width, to the last bit as Pillow's bilinear filter makes them: with
/// the triangle as wide as a new pixel, where there are fewer of them. Source: Pillow's `Resample.c`.
fn resized(pixels: &[u8], [rows, columns]: [usize; 2], width: usize) -> Vec<u8> {
    if width == columns {
        return pixels.to_vec();
    }
    let scale = columns as f64 / width as f64;
    let support = scale.max(1.0);
    let windows: Vec<(usize, Vec<i64>)> = (0..width)
        .map(|at| {
            let centre = (at as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(columns);
            let weight = |x: usize| (1.0 - ((x as f64 - centre + 0.5) / support).abs()).max(0.0);
            let weights: Vec<f64> = (first..end).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |w: &f64| (0.5 + w / sum * f64::from(1 << PRECISION)) as i64;
            (first, weights.iter().map(fixed).collect())
        })
        .collect();
    let mut out = Vec::with_capacity(rows * width * 3);
    for row in pixels.chunks_exact(columns * 3) {
        for (first, weights) in &windows {
            for channel in 0..3 {
                let own = row[first * 3 + channel..].iter().step_by(3);
                let products = own.zip(weights).map(|(&pixel, w)| i64::from(pixel) * w);
                let sum = products.sum::<i64>() + (1 << (PRECISION - 1));
                out.push((sum >> PRECISION).clamp(0, 255) as u8);
            }
        }
    }
    out
}
