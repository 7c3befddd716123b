//! The processor, and those of its instructions that can be used.

use std::sync::LazyLock;

use corsac_kernels::bf16_unit::Bf16Unit;

/// The processor: its architecture, its name if the system reports it, and the instruction sets
/// that kernels choose by.
pub(super) fn processor() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut words = vec![std::env::consts::ARCH.to_owned()];
        words.extend(features().into_iter().map(str::to_owned));
        if Bf16Unit::detect().is_some_and(Bf16Unit::has_tiles) {
            words.push("amx".to_owned());
        }
        let name = model_name().unwrap_or_default();
        format!("{name}; {}", words.join(" "))
    });
    &TEXT
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let known = [
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avxvnni", is_x86_feature_detected!("avxvnni")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    known.iter().filter(|own| own.1).map(|own| own.0).collect()
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;

    let known = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("dotprod", is_aarch64_feature_detected!("dotprod")),
        ("bf16", is_aarch64_feature_detected!("bf16")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
        ("sve", is_aarch64_feature_detected!("sve")),
    ];
    known.iter().filter(|own| own.1).map(|own| own.0).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Name of the processor, as Linux reports it.
fn model_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
