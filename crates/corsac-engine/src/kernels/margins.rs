//! Margins between the scores of labels and those of other classes.

use multiversion::multiversion;
use rayon::prelude::*;

use super::GRAIN;
use crate::parallel::Parallel;

/// Sums, by row, of the amounts by which scores of other classes exceed those of labels less 1. The labels of a row
/// end at its first -1.
///
/// Source: `multilabel_margin_loss` of PyTorch, which sums in double precision, too, and leaves out differences that
/// are NaN.
///
/// # Errors
/// A label that is no class and not -1, wherever it stands.
pub(crate) fn of_labels(
    scores: &[f32],
    labels: &[i64],
    classes: usize,
    out: &mut [f32],
) -> Result<(), i64> {
    let wrong = |label: &&i64| !(-1..classes as i64).contains(*label);
    if let Some(&label) = labels.iter().find(wrong) {
        return Err(label);
    }
    out.par_iter_mut()
        .enumerate()
        .with_min_len(GRAIN.div_ceil(classes.max(1)))
        .run_parallel_with(Vec::new, |others, (row, out)| {
            let of_row = row * classes..(row + 1) * classes;
            let scores = &scores[of_row.clone()];
            let labels = labels[of_row].iter().map(|&label| usize::try_from(label));
            let labels = labels.map_while(Result::ok);
            // What is a label exceeds nothing.
            others.clear();
            others.extend_from_slice(scores);
            labels
                .clone()
                .for_each(|label| others[label] = f32::NEG_INFINITY);
            let sums = labels.map(|label| above(others, 1.0 - scores[label]));
            *out = sums.sum::<f64>() as f32;
        });
    Ok(())
}

/// The sum of what is positive of `scores`, moved by a number.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn above(scores: &[f32], by: f32) -> f64 {
    let each = |score: f32| {
        let margin = by + score;
        f64::from(if margin > 0.0 { margin } else { 0.0 })
    };
    let mut sums = [0.0; 8];
    let (chunks, rest) = scores.as_chunks::<8>();
    for chunk in chunks {
        for (sum, &score) in sums.iter_mut().zip(chunk) {
            *sum += each(score);
        }
    }
    let rest = rest.iter().map(|&score| each(score));
    sums.into_iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::of_labels;

    #[test]
    fn labels_end_at_the_first_that_is_none() {
        // The example of PyTorch's page, before it is divided by the number of classes.
        let scores = [0.1, 0.2, 0.4, 0.8];
        let mut out = [0.0];
        assert_eq!(of_labels(&scores, &[3, 0, -1, 1], 4, &mut out), Ok(()));
        assert!((out[0] - 3.4).abs() < 1e-6);
        assert_eq!(of_labels(&scores, &[-1, 0, 1, 2], 4, &mut out), Ok(()));
        assert_eq!(out, [0.0]);
    }

    #[test]
    fn labels_that_are_no_classes_are_errors() {
        let mut out = [0.0];
        let run = |labels: &[i64; 2], out: &mut [f32]| of_labels(&[0.0; 2], labels, 2, out);
        assert_eq!(run(&[-1, 2], &mut out), Err(2));
        assert_eq!(run(&[0, -2], &mut out), Err(-2));
    }
}
