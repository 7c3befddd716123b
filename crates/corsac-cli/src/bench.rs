//! `corsac bench`

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corsac_engine::{Elements, Precision, Tensor, TensorSpec};
use serde_json::json;

use crate::arguments::{BenchOptions, named};
use crate::failure::Failure;
use crate::table::grouped;

/// Number of calls before the timed ones.
const WARM_UP: usize = 3;

/// Measures loading and calls.
pub(crate) fn run(options: &BenchOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let path = options.model.path();
    let failed = Failure::model(path);
    let start = Instant::now();
    let model = Arc::new(options.model.load(options.precision, options.threads)?);
    let load = start.elapsed();
    let inputs: Vec<Tensor> = match options.input.is_empty() {
        true => {
            let values = options.sizes.values(model.signature())?;
            let specs = model.signature().specs_at(&values).map_err(&failed)?;
            specs.iter().filter_map(made_up).collect()
        }
        false => crate::run::inputs(&model, &options.input)?,
    };
    let of_state = |name: &str| model.state().symbols().iter().any(|own| own.name == name);
    let mut state_sizes = named(&options.sizes.size);
    state_sizes.retain(|(name, _)| of_state(name));
    let mut session = model.session(&state_sizes).map_err(&failed)?;
    let sized = session.specialise_for(None, &inputs).map_err(&failed)?;
    let mut call = || -> Result<Duration, Failure> {
        let start = Instant::now();
        session.run(None, &inputs).map_err(&failed)?;
        Ok(start.elapsed())
    };
    let first = call()?;
    for _ in 1..WARM_UP {
        call()?;
    }
    let mut times = Vec::with_capacity(options.repeat);
    for _ in 0..options.repeat {
        times.push(call()?);
    }
    times.sort_unstable();
    let (least, most) = (times[0], times[times.len() - 1]);
    let median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2;
    let precision = options.precision.precision().effective();
    let arena = sized.executable().plan().size_bytes();
    if options.json {
        let report = json!({
            "model": path.display().to_string(),
            "threads": model.threads(),
            "precision": if precision == Precision::Bf16 { "bf16" } else { "f32" },
            "repeat": options.repeat,
            "load_seconds": load.as_secs_f64(),
            "first_seconds": first.as_secs_f64(),
            "min_seconds": least.as_secs_f64(),
            "median_seconds": median.as_secs_f64(),
            "max_seconds": most.as_secs_f64(),
            "arena_bytes": arena,
        });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    writeln!(out, "load     {}", shown(load))?;
    writeln!(out, "first    {}", shown(first))?;
    writeln!(out, "min      {}", shown(least))?;
    writeln!(out, "median   {}", shown(median))?;
    writeln!(out, "max      {}", shown(most))?;
    let arena = grouped(i64::try_from(arena).unwrap_or(i64::MAX));
    writeln!(
        out,
        "{} calls on {} threads; {arena} bytes for values",
        options.repeat,
        model.threads()
    )?;
    Ok(())
}

/// A duration as text: in milliseconds, or below one millisecond in microseconds.
fn shown(time: Duration) -> String {
    match time < Duration::from_millis(1) {
        true => format!("{:.3} µs", time.as_secs_f64() * 1e6),
        false => format!("{:.3} ms", time.as_secs_f64() * 1e3),
    }
}

/// An input of numbers between -1 and 1, the same in every run; zeros for integers and truth values.
/// `None` if the engine has no such elements.
fn made_up(spec: &TensorSpec) -> Option<Tensor> {
    let zeros = spec.zeros()?;
    let len = zeros.elements().len();
    let mut state = 1_u32;
    let mut next = || {
        // Source: Numerical Recipes, "An even quicker generator".
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let numbers = (0..len).map(|_| next());
    let elements: Elements = match zeros.elements() {
        Elements::F32(_) => numbers.collect::<Vec<f32>>().into(),
        Elements::F64(_) => numbers.map(f64::from).collect::<Vec<f64>>().into(),
        Elements::I64(_) | Elements::Bool(_) => return Some(zeros),
    };
    let tensor = Tensor::new(spec.shape.clone(), elements);
    tensor.and_then(|own| own.with_dtype(spec.dtype)).ok()
}
