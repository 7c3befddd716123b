//! Modules of the crate import each other in one direction: programs are the ground, kernels compute
//! with their operators, and lowering, optimisation, plan and execution stand on both.

#![expect(clippy::unwrap_used, reason = "a failure is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The paths of `folder`'s modules, with their source.
fn modules(folder: &Path, path: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        let own = format!("{path}::{name}");
        if file.is_dir() {
            modules(&file, &own, found);
        } else {
            let own = if matches!(name, "mod" | "lib") {
                path.to_owned()
            } else {
                own
            };
            found.insert(own, fs::read_to_string(&file).unwrap());
        }
    }
}

/// The modules of the crate but those of unit tests, with their source.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    modules(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        "crate",
        &mut found,
    );
    found.retain(|module, _| !module.ends_with("::tests"));
    found
}

/// The paths of an import, of which a list has several.
fn paths(import: &str) -> Vec<String> {
    let Some((prefix, list)) = import.split_once('{') else {
        return vec![import.to_owned()];
    };
    let mut depth = 0;
    let items = list.strip_suffix('}').unwrap().split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    let items = items.map(str::trim).filter(|item| !item.is_empty());
    items
        .flat_map(|item| paths(&format!("{prefix}{item}")))
        .collect()
}

/// The imports of a source text, without `use`.
fn statements(source: &str) -> impl Iterator<Item = String> + '_ {
    source.split(';').filter_map(|statement| {
        let is_start = |line: &&str| {
            let starts = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
            starts.iter().any(|start| line.starts_with(start))
        };
        let line = statement.lines().find(is_start)?;
        let start = statement.find(line)? + line.find("use ")? + 4;
        Some(statement[start..].split_whitespace().collect())
    })
}

fn imports(sources: &BTreeMap<String, String>) -> Imports {
    let mut found = Imports::new();
    for (module, source) in sources {
        let own = found.entry(module.clone()).or_default();
        // Tests of a module may use what is above it.
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let parent = module
            .rsplit_once("::")
            .map_or("crate", |(parent, _)| parent);
        for import in statements(source) {
            let import = match import.split_once("::") {
                Some(("super", rest)) => format!("{parent}::{rest}"),
                Some(("crate", _)) => import,
                _ => format!("{module}::{import}"),
            };
            for path in paths(&import) {
                let mut target = path.as_str();
                while !sources.contains_key(target) {
                    let Some((shorter, _)) = target.rsplit_once("::") else {
                        break;
                    };
                    target = shorter;
                }
                if sources.contains_key(target) && target != module && target != "crate" {
                    own.insert(target.to_owned());
                }
            }
        }
    }
    found
}

/// Modules that `from` imports, directly or through others.
fn reached<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut rest) = (BTreeSet::new(), vec![from]);
    while let Some(module) = rest.pop() {
        for next in &imports[module] {
            if seen.insert(next.as_str()) {
                rest.push(next);
            }
        }
    }
    seen
}

#[test]
fn circles_of_imports_are_a_parent_and_its_children() {
    let imports = imports(&sources());
    let reached: BTreeMap<&str, _> = imports
        .keys()
        .map(|own| (own.as_str(), reached(&imports, own)))
        .collect();
    let mut circles = BTreeSet::new();
    for (&module, all) in &reached {
        let circle: BTreeSet<&str> = all
            .iter()
            .copied()
            .filter(|other| reached[other].contains(module))
            .collect();
        let parents = circle
            .iter()
            .flat_map(|own| [Some((*own, "")), own.rsplit_once("::")]);
        let mut parents = parents.flatten().map(|(parent, _)| parent);
        let is_below = |own: &str, parent: &str| {
            own == parent
                || own
                    .rsplit_once("::")
                    .is_some_and(|(above, _)| above == parent)
        };
        if !parents.any(|parent| circle.iter().all(|own| is_below(own, parent)))
            && !circle.is_empty()
        {
            circles.insert(circle);
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn imports_lead_down() {
    let imports = imports(&sources());
    let floor = |module: &str| {
        let name = module.split("::").nth(1).unwrap_or("lib");
        FLOORS
            .iter()
            .position(|floor| floor.contains(&name))
            .unwrap()
    };
    for (module, all) in &imports {
        for other in all {
            assert!(floor(other) <= floor(module), "{module} imports {other}");
        }
    }
}
