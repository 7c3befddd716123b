//! Modules of the crate import each other in one direction: programs are the ground, kernels compute
//! with their operators, and lowering, optimisation, plan and execution stand on both.

use std::path::Path;

use corsac_testkit::imports::Imports;

/// Modules by floor: each imports only its own floor and those before it.
const FLOORS: [&[&str]; 7] = [
    &["program"],
    &["aligned_buffer", "data", "error", "parallel", "threads"],
    &["kernels"],
    &["lower", "optimise", "plan", "prepare"],
    &["execute"],
    &["model"],
    &["cache", "lib"],
];

#[test]
fn imports_lead_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let imports = Imports::of_crate(&source);
    assert!(imports.iter().count() > 80);
    let floor = |module: &str| {
        let name = module.split("::").nth(1).unwrap_or("lib");
        FLOORS
            .iter()
            .position(|floor| floor.contains(&name))
            .unwrap()
    };
    for (module, all) in imports.iter() {
        for other in all {
            assert!(floor(other) <= floor(module), "{module} imports {other}");
        }
    }
}
