//! Costs of nodes, and their colour scale.

use serde::Serialize;

/// A metric that can be shown as a colour instead of the kind of operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Time taken.
    Time,
    /// Bytes read and written.
    Bytes,
    /// Floating-point operations.
    Flops,
}

/// Costs of a node; an unknown one is `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantities {
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
    /// Bytes read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Floating-point operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 3] = [Self::Time, Self::Bytes, Self::Flops];

    /// Its name in a legend.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Time => "Time",
            Self::Bytes => "Bytes",
            Self::Flops => "FLOPs",
        }
    }

    /// An amount, with three digits and a unit.
    #[must_use]
    pub fn format(self, amount: f64) -> String {
        match self {
            Self::Time => scaled(
                amount,
                1.0,
                &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
            ),
            Self::Bytes => scaled(
                amount,
                1.0,
                &[
                    (1.0, "B"),
                    (1024.0, "KiB"),
                    (1_048_576.0, "MiB"),
                    (1_073_741_824.0, "GiB"),
                ],
            ),
            Self::Flops => scaled(
                amount,
                1.0,
                &[
                    (1.0, "FLOP"),
                    (1e3, "kFLOP"),
                    (1e6, "MFLOP"),
                    (1e9, "GFLOP"),
                    (1e12, "TFLOP"),
                ],
            ),
        }
    }
}

/// `amount` in the largest unit of which it has at least `least`.
fn scaled(amount: f64, least: f64, units: &[(f64, &str)]) -> String {
    let fitting = units.iter().rev().find(|(size, _)| amount >= least * size);
    let (size, unit) = fitting.unwrap_or(&units[0]);
    let number = amount / size;
    let digits = match number {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} {unit}")
}

impl Quantities {
    /// The amount of one metric, if it is known.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Time => self.time,
            Metric::Bytes => self.bytes,
            Metric::Flops => self.flops,
        }
    }

    /// Adds the known amounts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        let sum = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.time = sum(self.time, other.time);
        self.bytes = sum(self.bytes, other.bytes);
        self.flops = sum(self.flops, other.flops);
    }
}

/// The meaning of colours, instead of the kind of operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// A metric, from cold to hot.
    Metric(Metric),
    /// The part of the program that a node is in.
    Part,
}

impl Overlay {
    /// All overlays.
    pub const ALL: [Self; 4] = [
        Self::Metric(Metric::Time),
        Self::Metric(Metric::Bytes),
        Self::Metric(Metric::Flops),
        Self::Part,
    ];

    /// Its name in options: `time`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Metric(Metric::Time) => "time",
            Self::Metric(Metric::Bytes) => "bytes",
            Self::Metric(Metric::Flops) => "flops",
            Self::Part => "part",
        }
    }

    /// The metric, if it is one.
    #[must_use]
    pub fn metric(self) -> Option<Metric> {
        match self {
            Self::Metric(metric) => Some(metric),
            Self::Part => None,
        }
    }
}

/// Steps of the colour scale.
pub(crate) const STEPS: usize = 9;

/// The step of the colour scale for an amount. The scale is of square roots: costs differ by
/// orders of magnitude, and the smaller half of them should not all look the same.
pub(crate) fn step(amount: f64, largest: f64) -> usize {
    if largest <= 0.0 {
        return 0;
    }
    let share = (amount / largest).clamp(0.0, 1.0).sqrt();
    // In 0..STEPS, since the share is at most 1.
    ((share * (STEPS - 1) as f64).round() as usize).min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_and_a_unit() {
        assert_eq!(Metric::Time.format(0.001_234), "1.23 ms");
        assert_eq!(Metric::Time.format(0.0), "0 ns");
        assert_eq!(Metric::Bytes.format(1024.0), "1 KiB");
        assert_eq!(Metric::Bytes.format(100.0), "100 B");
        assert_eq!(Metric::Flops.format(4.1e9), "4.1 GFLOP");
    }

    #[test]
    fn steps_are_in_the_scale() {
        assert_eq!(step(0.0, 10.0), 0);
        assert_eq!(step(10.0, 10.0), STEPS - 1);
        assert_eq!(step(1.0, 0.0), 0);
        assert_eq!(step(f64::NAN, 1.0), 0);
        assert_eq!(step(f64::INFINITY, 1.0), STEPS - 1);
    }
}
